// SPDX-License-Identifier: Apache-2.0
// The calls of SingleKernels on the compiled HLS kernels. A kernel's shared object is loaded at its first call, and
// made then where it is missing (library.hpp): every function may throw KernelMissing.
//
// Each call may run on any thread: a kernel keeps no state between calls and none outside its thread.
#pragma once

#include "engine/single_kernels.hpp"

namespace kvdrive::hls {

// Loads the kernels that attention with `group` query heads per KV head needs.
void prepare_attention(unsigned group);

std::uint32_t attention(std::span<std::byte> memory, std::uint64_t job);

// Runs the job over codes at byte `job` of `memory`. Returns its status word.
std::uint32_t attention_codes(std::span<std::byte> memory, std::uint64_t job);

// Runs the GroupChoiceJob at byte `job` of `memory`. Returns its status word.
std::uint32_t group_choice(std::span<std::byte> memory, std::uint64_t job);
// True if a kernel is built for the shape of the job.
bool chooses_groups(std::span<const std::byte> memory, std::uint64_t job);

// See Engine::ffn. One call of the kernel for each token; rows are padded with zeros to what it takes.
std::uint32_t ffn(const FfnBlock& block, FfnSum* sums);

ArgtopkResult argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type);

FilterResult page_filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap, std::uint32_t rows,
                         std::uint32_t row_bytes, std::uint32_t page_bytes);

std::uint32_t gemv_rows(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t d,
                        std::uint32_t tokens, std::uint32_t* dots);

std::uint32_t gemv_columns(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t r,
                           std::uint32_t tokens, std::uint32_t* dots);

std::uint32_t gemv_accumulate(const std::uint32_t* p, const std::uint16_t* v, std::uint32_t g, std::uint32_t d,
                              std::uint32_t tokens, Wide* acc);

SoftmaxResult softmax(std::span<const std::int32_t> dense, const std::uint8_t* valid,
                      std::span<const std::int32_t> tail);

}  // namespace kvdrive::hls
