// SPDX-License-Identifier: Apache-2.0
#include "ftl/extents.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace kvdrive {

std::size_t Extents::first_ending_after(std::uint32_t index) const {
  if (!runs_.empty() && runs_.back().index <= index) return runs_.size() - (runs_.back().end() > index ? 1 : 0);
  const auto found = std::ranges::upper_bound(runs_, index, {}, &Extent::end);
  return static_cast<std::size_t>(found - runs_.begin());
}

std::optional<Unit> Extents::at(std::uint32_t index) const {
  const std::size_t i = first_ending_after(index);
  if (i == runs_.size() || runs_[i].index > index) return std::nullopt;
  return runs_[i].unit + (index - runs_[i].index);
}

bool Extents::joins(const Extent& left, const Extent& right) const {
  return left.end() == right.index && std::uint64_t{left.unit} + left.count == right.unit;
}

void Extents::set(std::uint32_t index, std::uint32_t count, Unit unit) {
  remove(index, count);
  const Extent added{index, count, unit};
  const std::size_t i = first_ending_after(index);
  const bool left = i > 0 && joins(runs_[i - 1], added), right = i < runs_.size() && joins(added, runs_[i]);
  if (left) {
    runs_[i - 1].count += count + (right ? runs_[i].count : 0);
    touch(i - 1);
    if (right) {
      runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(i));
      trim();
    }
  } else {
    if (right) {
      runs_[i] = {index, runs_[i].count + count, unit};
    } else {
      // The vector grows by an eighth at a time, because runs are most of a drive's metadata.
      if (runs_.size() == runs_.capacity()) runs_.reserve(runs_.size() + runs_.size() / 8 + 2);
      runs_.insert(runs_.begin() + static_cast<std::ptrdiff_t>(i), added);
    }
    touch(i);
  }
}

void Extents::remove(std::uint32_t index, std::uint32_t count) {
  const std::uint32_t end = index + count;
  std::size_t i = first_ending_after(index);
  if (i == runs_.size() || runs_[i].index >= end) return;
  touch(i);
  if (const Extent run = runs_[i]; run.index < index) {
    runs_[i++].count = index - run.index;
    if (run.end() > end) {
      runs_.insert(runs_.begin() + static_cast<std::ptrdiff_t>(i),
                   Extent{end, run.end() - end, run.unit + (end - run.index)});
      return;
    }
  }
  std::size_t last = i;
  while (last < runs_.size() && runs_[last].end() <= end) ++last;
  if (last < runs_.size() && runs_[last].index < end) {
    const Extent run = runs_[last];
    runs_[last] = {end, run.end() - end, run.unit + (end - run.index)};
  }
  runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(i), runs_.begin() + static_cast<std::ptrdiff_t>(last));
  trim();
}

// Returns memory after many runs were removed, because runs are most of a drive's metadata.
void Extents::trim() {
  if (runs_.capacity() < 16 || runs_.size() > runs_.capacity() / 2) return;
  std::vector<Extent> fewer;
  fewer.reserve(runs_.size() + runs_.size() / 8 + 2);
  fewer.assign(runs_.begin(), runs_.end());
  runs_ = std::move(fewer);
}

void Extents::cut(std::uint32_t from) {
  const std::size_t i = first_ending_after(from);
  if (i == runs_.size()) return;
  touch(i);
  const bool whole = runs_[i].index >= from;
  if (!whole) runs_[i].count = from - runs_[i].index;
  runs_.resize(i + (whole ? 0 : 1));
  trim();
}

void Extents::load(std::size_t kept, std::span<const Extent> added) {
  if (kept > runs_.size()) throw std::runtime_error("a record keeps more of a list than there is");
  runs_.resize(kept);
  runs_.insert(runs_.end(), added.begin(), added.end());
  for (std::size_t i = kept; i < runs_.size(); ++i) {
    const Extent& run = runs_[i];
    const bool sane = run.count > 0 && run.index + run.count > run.index &&
                      std::uint64_t{run.unit} + run.count <= (std::uint64_t{1} << 32);
    if (!sane || (i > 0 && runs_[i - 1].end() > run.index)) throw std::runtime_error("a list record is damaged");
  }
  unsaved_ = runs_.size();
}

}  // namespace kvdrive
