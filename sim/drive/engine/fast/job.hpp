// SPDX-License-Identifier: Apache-2.0
// A job descriptor that was checked (docs/jobs.md), with pointers in place of its addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/abi.hpp"
#include "engine/engine.hpp"

namespace kvdrive::fast {

struct Job {
  abi::Mode mode;
  unsigned g;
  unsigned d;
  unsigned r;
  std::uint32_t tokens;
  std::uint32_t inline_tokens;
  std::uint32_t k_top;
  std::uint32_t local;
  std::uint32_t scale_log2e;
  std::uint32_t count;
  const std::uint16_t* q;
  const std::uint16_t* k;
  const std::uint16_t* v;
  const KvPages* pages;  // null: K and V are arrays
  const std::int32_t* inline_scores;
  std::size_t inline_stride;  // scores of inline tokens from one head to the next
  const std::uint16_t* inline_v;
  const std::uint8_t* valid;  // null: all tokens are valid
  std::uint8_t* rows;
  const std::int64_t* v_sum;
  std::byte* out;
  std::size_t out_bytes;
  abi::AttentionResult* result;  // [records_of(g)]
};

constexpr std::size_t ceil_div(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit; }

constexpr std::size_t bitmap_bytes(std::size_t bits) { return ceil_div(bits, abi::kBeatBits) * abi::kBeatBytes; }

inline bool bit(const std::uint8_t* bitmap, std::size_t i) { return ((bitmap[i >> 3] >> (i & 7)) & 1) != 0; }

constexpr std::uint32_t bit_if(bool condition, abi::Status status) { return condition ? std::uint32_t{status} : 0; }

// Status bits of the single checks against the shapes that commands may have. Calls on plain arrays use them too.
std::uint32_t check_group(std::uint32_t g);
std::uint32_t check_head_dim(std::uint32_t d);
std::uint32_t check_tokens(std::uint64_t tokens);

// The validity bits of the dense tokens [first, first + 64); bits beyond the job are 0. `first` is a multiple of 32.
std::uint64_t valid_word(const Job& job, std::uint32_t first);

// Reads the descriptor at byte `address`. Returns 0 and fills `job` if it is valid. With `pages`, K and V are there and
// not in the memory.
std::uint32_t read_job(std::span<std::byte> memory, std::uint64_t address, Job& job, const KvPages* pages = nullptr);

}  // namespace kvdrive::fast
