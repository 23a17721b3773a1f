// SPDX-License-Identifier: Apache-2.0
// Which token of a session holds which cell of llama.cpp's cache.
//
// llama.cpp writes rows into cells, in any order and again and again; a session only grows at its end. So a cell that
// is written becomes the session's next token, and the token that held the cell before is dead: attention masks it.
// Attention does not depend on the order of tokens, so the results are those of the cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvdrive::llama {

class CellLog {
 public:
  static constexpr std::int32_t kNone = -1;

  explicit CellLog(std::uint32_t cells) : token_of_(cells, kNone) {}

  std::uint32_t cells() const { return static_cast<std::uint32_t>(token_of_.size()); }
  std::uint32_t tokens() const { return static_cast<std::uint32_t>(cell_of_.size()); }
  std::uint32_t dead() const { return dead_; }
  // The token of a cell, or kNone if the cell was never written.
  std::int32_t token_of(std::uint32_t cell) const { return token_of_[cell]; }
  // The cell of a token, or kNone if the token is dead.
  std::int32_t cell_of(std::uint32_t token) const { return cell_of_[token]; }
  // True if token i holds cell i, for all tokens.
  bool in_order() const { return displaced_ == 0; }

  // The tokens of the last `add`: these and all behind them.
  std::uint32_t batch() const { return batch_; }
  // True if the last `add` was one of exactly these cells.
  bool batch_is(std::span<const std::uint32_t> cells) const;
  // The number of tokens at the end whose cells are all among these, so that nothing is lost when they are dropped
  // before the cells are written again.
  std::uint32_t rewritten_end(std::span<const std::uint32_t> cells) const;
  // Drops the tokens from `tokens` on. Precondition: they hold cells that are written next, or hold nothing of value.
  void trim(std::uint32_t tokens);
  // Adds a token for each cell.
  void add(std::span<const std::uint32_t> cells);
  // The live cells in ascending order.
  std::vector<std::uint32_t> live_cells() const;
  void clear();

 private:
  std::vector<std::int32_t> token_of_, cell_of_;
  std::uint32_t dead_ = 0, batch_ = 0;
  std::uint32_t displaced_ = 0;  // tokens that do not hold the cell of their number
};

}  // namespace kvdrive::llama
