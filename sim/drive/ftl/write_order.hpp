// SPDX-License-Identifier: Apache-2.0
// Numbers that only rise: the order in which groups were written (Spare::order), and the families that lists had.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ftl/group_map.hpp"
#include "storage/records.hpp"

namespace kvdrive {

class WriteOrder {
 public:
  std::uint64_t take() { return next_++; }
  // Groups that the journal knows have numbers below this one.
  std::uint64_t known() const { return known_; }
  // No group gets a number below `order`.
  void skip(std::uint64_t order) { next_ = std::max(next_, order); }

  void save(RecordWriter& writer, const GroupMap& map, bool everything) const {
    if (!everything && next_ == saved_) return;
    writer.put(RecordType::kCounters);
    writer.put(Saved{next_, map.next_family()});
    writer.end_record();
  }
  void committed() { saved_ = next_; }
  // What was stored after the last commit is in the flash, but nobody knows how much: its numbers are not used again.
  void load(RecordReader& reader, GroupMap& map) {
    const auto saved = reader.get<Saved>();
    known_ = saved.next_order;
    next_ = saved_ = known_ + kMostBetweenCommits;
    map.skip_families(static_cast<Family>(saved.next_family));
  }

 private:
  struct Saved {
    std::uint64_t next_order, next_family;
  };
  // More groups than a drive has.
  static constexpr std::uint64_t kMostBetweenCommits = std::uint64_t{1} << 32;

  std::uint64_t next_ = 0;
  std::uint64_t saved_ = 0;  // what the last commit said
  std::uint64_t known_ = 0;  // what the journal said when it was read
};

}  // namespace kvdrive
