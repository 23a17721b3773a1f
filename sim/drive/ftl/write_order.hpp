// SPDX-License-Identifier: Apache-2.0
// Numbers that only grow: the order in which groups were written (Spare::order), and the families of lists.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ftl/group_map.hpp"
#include "storage/records.hpp"

namespace kvdrive {

class WriteOrder {
 public:
  std::uint64_t take() { return next_++; }
  // The groups that the journal knows have orders below this one.
  std::uint64_t known() const { return known_; }
  // No later group gets an order below `order`.
  void skip(std::uint64_t order) { next_ = std::max(next_, order); }
  // True if the next new family is one that no list gets after a power loss. If not, a commit reserves more families.
  bool reserved(const GroupMap& map) const { return map.next_family() < reserved_; }

  void save(RecordWriter& writer, const GroupMap& map, bool everything) const {
    if (!everything && next_ == saved_ && reserved(map)) return;
    writer.put(RecordType::kCounters);
    writer.put(Saved{next_, reserved_after(map)});
    writer.end_record();
  }
  void committed(const GroupMap& map) {
    saved_ = next_;
    reserved_ = reserved_after(map);
  }
  // Groups that were stored after the last commit may be in the flash. Their number is unknown, so a range of orders
  // that covers them is skipped.
  void load(RecordReader& reader, GroupMap& map) {
    const auto saved = reader.get<Saved>();
    known_ = saved.next_order;
    next_ = saved_ = known_ + kMostBetweenCommits;
    reserved_ = saved.reserved;
    map.skip_families(static_cast<Family>(saved.reserved));
  }

 private:
  struct Saved {
    std::uint64_t next_order, reserved;
  };
  // Larger than the number of groups of any drive.
  static constexpr std::uint64_t kMostBetweenCommits = std::uint64_t{1} << 32;
  // The number of families that a commit reserves. Each mount that commits takes so many of the 2^32 families, even if
  // it makes no list. When they are used up, the next new list commits first.
  static constexpr std::uint64_t kFamiliesAtOnce = std::uint64_t{1} << 12;

  // What the journal reserves with the next record: all families below this one.
  std::uint64_t reserved_after(const GroupMap& map) const {
    return reserved(map) ? reserved_ : map.next_family() + kFamiliesAtOnce;
  }

  std::uint64_t next_ = 0;
  std::uint64_t saved_ = 0;     // the value at the last commit
  std::uint64_t known_ = 0;     // the value in the journal when it was read
  std::uint64_t reserved_ = 0;  // families below this one are never used again after a power loss
};

}  // namespace kvdrive
