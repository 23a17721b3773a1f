// SPDX-License-Identifier: Apache-2.0
// Single kernels on plain arrays, and jobs in the caller's memory. `kvdrive kernel`, tests, and scores that the host
// computes use them; a drive does not (engine.hpp). Lengths are checked, and errors are reported in the status word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/abi.hpp"
#include "engine/engine.hpp"

namespace kvdrive {

struct ArgtopkResult {
  std::uint32_t status = 0;
  std::vector<std::uint32_t> indices;  // ascending
  std::vector<std::uint8_t> bitmap;    // whole beats
};

struct SoftmaxResult {
  std::uint32_t status = 0;
  std::vector<std::uint32_t> p;  // dense tokens, then the inline tokens; LSB 2^-31
  std::int32_t max = 0;
  std::uint64_t sum = 0;  // LSB 2^-31
};

// A 128-bit two's complement integer, least significant word first.
struct Wide {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

class SingleKernels {
 public:
  SingleKernels() = default;
  SingleKernels(const SingleKernels&) = delete;
  SingleKernels& operator=(const SingleKernels&) = delete;
  virtual ~SingleKernels() = default;

  virtual const char* name() const = 0;

  // Runs the AttentionJob at byte `job` of `memory` (64-byte aligned). Returns its status word (docs/jobs.md).
  virtual std::uint32_t attention(std::span<std::byte> memory, std::uint64_t job) = 0;

  // `keys`: n binary32 patterns (uint32_t) or n binary16 patterns (uint16_t), by `type`.
  virtual ArgtopkResult argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type) = 0;

  // Same as Engine::filter.
  virtual FilterResult page_filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap,
                                   std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t page_bytes) = 0;

  // q [g][d], k [tokens][d] binary16 -> dots [g][tokens], binary32 patterns.
  virtual std::uint32_t gemv_rows(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t d,
                                  std::uint32_t tokens, std::uint32_t* dots) = 0;

  // q [g][r], k [ceil(tokens/32)][r][32] binary16 -> dots [g][tokens], binary32 patterns. 1 <= r <= 256.
  virtual std::uint32_t gemv_columns(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t r,
                                     std::uint32_t tokens, std::uint32_t* dots) = 0;

  // p [g][tokens] (LSB 2^-31, at most 2^31 with 20 significant bits), v [tokens][d] binary16 -> acc [g][d], LSB 2^-55.
  virtual std::uint32_t gemv_accumulate(const std::uint32_t* p, const std::uint16_t* v, std::uint32_t g,
                                        std::uint32_t d, std::uint32_t tokens, Wide* acc) = 0;

  // Scores of one head, Q12.20. `valid`: bitmap of the dense tokens, or null for all.
  virtual SoftmaxResult softmax(std::span<const std::int32_t> dense, const std::uint8_t* valid,
                                std::span<const std::int32_t> tail) = 0;
};

std::unique_ptr<SingleKernels> make_hls_kernels();
std::unique_ptr<SingleKernels> make_fast_kernels(int threads = 1);

}  // namespace kvdrive
