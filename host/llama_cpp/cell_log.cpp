// SPDX-License-Identifier: Apache-2.0
#include "cell_log.hpp"

#include <algorithm>
#include <unordered_set>

namespace kvdrive::llama {

bool CellLog::batch_is(std::span<const std::uint32_t> cells) const {
  if (cells.empty() || tokens() - batch_ != cells.size()) return false;
  return std::equal(cells.begin(), cells.end(), cell_of_.begin() + batch_,
                    [](std::uint32_t cell, std::int32_t held) { return static_cast<std::int32_t>(cell) == held; });
}

std::uint32_t CellLog::rewritten_end(std::span<const std::uint32_t> cells) const {
  const std::unordered_set<std::uint32_t> written(cells.begin(), cells.end());
  std::uint32_t count = 0;
  while (count < tokens()) {
    const std::int32_t cell = cell_of_[tokens() - 1 - count];
    if (cell != kNone && !written.contains(static_cast<std::uint32_t>(cell))) break;
    ++count;
  }
  return count;
}

void CellLog::trim(std::uint32_t tokens) {
  while (this->tokens() > tokens) {
    const std::uint32_t token = this->tokens() - 1;
    const std::int32_t cell = cell_of_[token];
    if (cell == kNone) {
      --dead_;
    } else {
      token_of_[static_cast<std::size_t>(cell)] = kNone;
    }
    if (cell != static_cast<std::int32_t>(token)) --displaced_;
    cell_of_.pop_back();
  }
  batch_ = std::min(batch_, tokens);
}

void CellLog::add(std::span<const std::uint32_t> cells) {
  batch_ = tokens();
  for (const std::uint32_t cell : cells) {
    const std::uint32_t token = tokens();
    const std::int32_t before = token_of_[cell];
    if (before != kNone) {
      cell_of_[static_cast<std::size_t>(before)] = kNone;
      ++dead_;
      if (static_cast<std::uint32_t>(before) == cell) ++displaced_;
    }
    token_of_[cell] = static_cast<std::int32_t>(token);
    cell_of_.push_back(static_cast<std::int32_t>(cell));
    if (token != cell) ++displaced_;
  }
}

std::vector<std::uint32_t> CellLog::live_cells() const {
  std::vector<std::uint32_t> live;
  for (std::uint32_t cell = 0; cell < cells(); ++cell) {
    if (token_of_[cell] != kNone) live.push_back(cell);
  }
  return live;
}

void CellLog::clear() {
  std::fill(token_of_.begin(), token_of_.end(), kNone);
  cell_of_.clear();
  dead_ = batch_ = displaced_ = 0;
}

}  // namespace kvdrive::llama
