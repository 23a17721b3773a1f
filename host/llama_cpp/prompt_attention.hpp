// SPDX-License-Identifier: Apache-2.0
// Attention of a prompt: many queries over rows that were read once for all of them, in binary32.
//
// Queries are taken in blocks and rows in tiles. A block's numbers lie side by side, a lane for each query and head, so
// that every step is the same instruction for all of them: each number of K and of V is read once for all query heads
// of its KV head. Maxima and sums are those of the rows so far (as in FlashAttention).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/fast/pool.hpp"

namespace kvdrive::llama {

// What queries see of rows: [queries][rows] binary16, added to scores; minus infinity hides a row.
class PromptMask {
 public:
  PromptMask(const std::uint16_t* numbers, std::size_t stride, std::uint32_t queries, std::uint32_t rows);

  enum class Tile : std::uint8_t { kHidden, kOpen, kMixed };
  // What a block of queries sees of a tile of rows.
  Tile tile(std::uint32_t block, std::uint32_t tile) const { return tiles_[std::size_t{block} * per_block_ + tile]; }
  // Row of numbers of a query.
  const std::uint16_t* row(std::uint32_t query) const { return numbers_ + query * stride_; }

 private:
  const std::uint16_t* numbers_;
  std::size_t stride_;
  std::uint32_t per_block_;
  std::vector<Tile> tiles_;
};

// All KV heads of one stream, or some. Strides are in numbers.
struct Prompt {
  std::uint32_t queries = 0, heads = 0, group = 0, rows = 0, k_dim = 0, v_dim = 0;
  float scale = 1;
  const float* q = nullptr;  // of a query and query head
  std::size_t q_query = 0, q_head = 0;
  const std::uint16_t *k = nullptr, *v = nullptr;  // [heads][rows][dim] binary16
  const PromptMask* mask = nullptr;                // null: every query sees every row
  float* out = nullptr;                            // [queries][...][v_dim]
  std::size_t out_query = 0;                       // from one query to the next
};

class PromptAttention {
 public:
  PromptAttention();
  PromptAttention(const PromptAttention&) = delete;
  PromptAttention& operator=(const PromptAttention&) = delete;
  ~PromptAttention();

  // Preconditions: dimensions are multiples of 8, and all numbers of K, V and q are finite.
  void run(const Prompt& prompt, int threads);

 private:
  std::unique_ptr<fast::Pool> pool_;  // of as many threads as the last call had
};

}  // namespace kvdrive::llama
