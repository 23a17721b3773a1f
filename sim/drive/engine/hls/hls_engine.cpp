// SPDX-License-Identifier: Apache-2.0
#include "engine/hls/hls_engine.hpp"

#include "engine/hls/kernels.hpp"

namespace kvdrive {

std::uint32_t HlsEngine::attention(std::span<std::byte> memory, std::uint64_t job) {
  return hls::attention(memory, job);
}

ArgtopkResult HlsEngine::argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type) {
  return hls::argtopk(keys, n, k, type);
}

FilterResult HlsEngine::page_filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap,
                                    std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t page_bytes) {
  return hls::page_filter(pages, bitmap, rows, row_bytes, page_bytes);
}

std::uint32_t HlsEngine::gemv_rows(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t d,
                                   std::uint32_t tokens, std::uint32_t* dots) {
  return hls::gemv_rows(q, k, g, d, tokens, dots);
}

std::uint32_t HlsEngine::gemv_columns(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t r,
                                      std::uint32_t tokens, std::uint32_t* dots) {
  return hls::gemv_columns(q, k, g, r, tokens, dots);
}

std::uint32_t HlsEngine::gemv_accumulate(const std::uint32_t* p, const std::uint16_t* v, std::uint32_t g,
                                         std::uint32_t d, std::uint32_t tokens, Wide* acc) {
  return hls::gemv_accumulate(p, v, g, d, tokens, acc);
}

SoftmaxResult HlsEngine::softmax(std::span<const std::int32_t> dense, const std::uint8_t* valid,
                                 std::span<const std::int32_t> tail) {
  return hls::softmax(dense, valid, tail);
}

std::unique_ptr<Engine> make_hls_engine() { return std::make_unique<HlsEngine>(); }

}  // namespace kvdrive
