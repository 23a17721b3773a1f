// SPDX-License-Identifier: Apache-2.0
// What the shared object of a kernel offers beside its tops, where plain arrays become the kernel's beats or streams.
// Each function is compiled into the shared object of its kernel, and found there by its name (library.hpp). Arguments
// and results are those of kernels.hpp.
#pragma once

#include "engine/single_kernels.hpp"

namespace kvdrive::hls {

extern "C" {

void call_argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type, ArgtopkResult& result);

std::uint32_t call_ffn(const FfnBlock& block, FfnSum* sums);

std::uint32_t call_gemv_rows(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t d,
                             std::uint32_t tokens, std::uint32_t* dots);
std::uint32_t call_gemv_columns(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t r,
                                std::uint32_t tokens, std::uint32_t* dots);
std::uint32_t call_gemv_accumulate(const std::uint32_t* p, const std::uint16_t* v, std::uint32_t g, std::uint32_t d,
                                   std::uint32_t tokens, Wide* acc);

void call_page_filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap, std::uint32_t rows,
                      std::uint32_t row_bytes, std::uint32_t page_bytes, FilterResult& result);

void call_softmax(std::span<const std::int32_t> dense, const std::uint8_t* valid, std::span<const std::int32_t> tail,
                  SoftmaxResult& result);

}  // extern "C"

}  // namespace kvdrive::hls
