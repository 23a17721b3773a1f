// SPDX-License-Identifier: Apache-2.0
// A job descriptor, checked (docs/jobs.md) and with its addresses turned into pointers.
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
  std::uint32_t tail_tokens;
  std::uint32_t k_top;
  std::uint32_t local;
  std::uint32_t scale_log2e;
  std::uint32_t count;
  const std::uint16_t* q;
  const std::uint16_t* k;
  const std::uint16_t* v;
  const KvPages* pages;  // null: k and v are arrays
  const std::int32_t* tail_scores;
  std::size_t tail_stride;  // scores from one head to the next
  const std::uint16_t* tail_v;
  const std::uint8_t* valid;  // null: all
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

// Status bits of the single checks, for the calls on plain arrays as well: shapes that commands may have.
std::uint32_t check_group(std::uint32_t g);
std::uint32_t check_head_dim(std::uint32_t d);
std::uint32_t check_tokens(std::uint64_t tokens);

// Bits of the dense tokens [first, first + 64): attended and inside the job. `first` is a multiple of 32.
std::uint64_t valid_word(const Job& job, std::uint32_t first);

// Reads the descriptor at byte `address`. Fills `job` when it returns 0. `pages`: K and V are there, not in the memory.
std::uint32_t read_job(std::span<std::byte> memory, std::uint64_t address, Job& job, const KvPages* pages = nullptr);

}  // namespace kvdrive::fast
