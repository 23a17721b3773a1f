// SPDX-License-Identifier: Apache-2.0
// The HLS kernels, compiled as software.
#pragma once

#include "engine/built_shapes.hpp"
#include "engine/engine.hpp"
#include "engine/hls/kernels.hpp"
#include "engine/host_memory.hpp"
#include "engine/single_kernels.hpp"

namespace kvdrive {

// Thread-safe. Supports only the shapes that the kernels are built for.
class HlsKernels final : public SingleKernels {
 public:
  const char* name() const override { return "hls"; }

  std::uint32_t attention(std::span<std::byte> memory, std::uint64_t job) override {
    return hls::attention(memory, job);
  }
  ArgtopkResult argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type) override {
    return hls::argtopk(keys, n, k, type);
  }
  FilterResult page_filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap,
                           std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t page_bytes) override {
    return hls::page_filter(pages, bitmap, rows, row_bytes, page_bytes);
  }
  std::uint32_t gemv_rows(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t d,
                          std::uint32_t tokens, std::uint32_t* dots) override {
    return hls::gemv_rows(q, k, g, d, tokens, dots);
  }
  std::uint32_t gemv_columns(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t r,
                             std::uint32_t tokens, std::uint32_t* dots) override {
    return hls::gemv_columns(q, k, g, r, tokens, dots);
  }
  std::uint32_t gemv_accumulate(const std::uint32_t* p, const std::uint16_t* v, std::uint32_t g, std::uint32_t d,
                                std::uint32_t tokens, Wide* acc) override {
    return hls::gemv_accumulate(p, v, g, d, tokens, acc);
  }
  SoftmaxResult softmax(std::span<const std::int32_t> dense, const std::uint8_t* valid,
                        std::span<const std::int32_t> tail) override {
    return hls::softmax(dense, valid, tail);
  }
};

class HlsEngine final : public Engine {
 public:
  const char* name() const override { return "hls"; }
  EngineMemory& memory() override { return memory_; }
  std::uint32_t attend(std::uint64_t job, const KvPages*) override { return shapes_.attend(memory_, job); }
  bool reads_codes() const override { return true; }
  std::uint32_t attend_codes(std::uint64_t job) override { return hls::attention_codes(memory_.used(), job); }
  // The drive's processor chooses for shapes that no kernel is built for: a zero head would count in the choice.
  std::uint32_t choose_groups(std::uint64_t job, std::span<const std::byte* const> index) override {
    const std::span<std::byte> memory = memory_.used();
    return hls::chooses_groups(memory, job) ? hls::group_choice(memory, job) : Engine::choose_groups(job, index);
  }
  std::uint32_t ffn(const FfnBlock& block, FfnSum* sums) override { return hls::ffn(block, sums); }
  FilterResult filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap, std::uint32_t rows,
                      std::uint32_t row_bytes, std::uint32_t page_bytes) override {
    return hls::page_filter(pages, bitmap, rows, row_bytes, page_bytes);
  }

 private:
  HostMemory memory_;
  BuiltShapes shapes_{hls::attention};
};

}  // namespace kvdrive
