// SPDX-License-Identifier: Apache-2.0
// Sets of rows or tokens as runs of consecutive numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvdrive {

struct Run {
  std::uint32_t first = 0, end = 0;

  std::uint32_t count() const { return end - first; }
};

// Ascending and disjoint.
class Runs {
 public:
  // Adds the numbers [first, end). Precondition: they lie behind all others.
  void add(std::uint32_t first, std::uint32_t end) {
    if (first >= end) return;
    count_ += end - first;
    if (!runs_.empty() && runs_.back().end == first) {
      runs_.back().end = end;
    } else {
      runs_.push_back({first, end});
    }
  }

  // The number of rows or tokens.
  std::uint32_t count() const { return count_; }
  bool empty() const { return runs_.empty(); }
  auto begin() const { return runs_.begin(); }
  auto end() const { return runs_.end(); }

 private:
  std::vector<Run> runs_;
  std::uint32_t count_ = 0;
};

}  // namespace kvdrive
