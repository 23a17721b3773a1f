// SPDX-License-Identifier: Apache-2.0
// The physical units of one list's groups, as runs ordered by group. A run maps consecutive groups to consecutive
// units.
//
// A list that was appended in large pieces has few runs, whatever its length. A list may have gaps between its groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nand/geometry.hpp"

namespace kvdrive {

struct Extent {
  std::uint32_t index = 0;
  std::uint32_t count = 0;
  Unit unit = 0;

  std::uint32_t end() const { return index + count; }
};

class Extents {
 public:
  std::optional<Unit> at(std::uint32_t index) const;

  // Maps `count` groups from `index` on to the units from `unit` on.
  void set(std::uint32_t index, std::uint32_t count, Unit unit);

  // Removes the groups from `from` on.
  void cut(std::uint32_t from);

  // Removes `count` groups from `index` on; some of them may be missing.
  void remove(std::uint32_t index, std::uint32_t count);

  // Visits the runs within [from, to). The first and the last run are clipped to the range.
  template <typename Visit>
  void for_each(std::uint32_t from, std::uint32_t to, Visit visit) const {
    for (std::size_t i = first_ending_after(from); i < runs_.size() && runs_[i].index < to; ++i) {
      const Extent& run = runs_[i];
      const std::uint32_t begin = run.index > from ? run.index : from, end = run.end() < to ? run.end() : to;
      visit(Extent{begin, end - begin, run.unit + (begin - run.index)});
    }
  }

  std::span<const Extent> runs() const { return runs_; }
  std::uint64_t memory_bytes() const { return runs_.capacity() * sizeof(Extent); }

  // The runs before index `unsaved()` have not changed since the last commit.
  std::size_t unsaved() const { return unsaved_; }
  void saved() { unsaved_ = runs_.size(); }
  void forget_saved() { unsaved_ = 0; }
  // Keeps the first `kept` runs and appends `added`. Throws std::runtime_error if the result is no valid list of runs.
  void load(std::size_t kept, std::span<const Extent> added);

 private:
  std::size_t first_ending_after(std::uint32_t index) const;
  void trim();
  bool joins(const Extent& left, const Extent& right) const;
  void touch(std::size_t run) { unsaved_ = run < unsaved_ ? run : unsaved_; }

  std::vector<Extent> runs_;
  std::size_t unsaved_ = 0;
};

}  // namespace kvdrive
