// SPDX-License-Identifier: Apache-2.0
// The write queue holds groups in drive memory until they fill a row of the open band.
//
// Each queued group has a number, kMostUnits or more, in the place of a physical unit. Numbers grow by one from group
// to group and wrap around.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "ftl/group_map.hpp"
#include "nand/timing.hpp"
#include "storage/media.hpp"
#include "storage/records.hpp"

namespace kvdrive {

class WriteQueue {
 public:
  struct Slot {
    Family family = 0;
    Owner owner;
    std::uint32_t crc = 0;
    std::uint64_t order = 0;  // see Spare
    Ns ready = 0;             // device time from which the group can be programmed
    bool saved = false;       // the journal holds the contents
    bool live = true;         // a list still references the group
  };

  explicit WriteQueue(Media& media) : media_(media) {}

  // True if the unit is the number of a queued group.
  static bool holds(Unit unit) { return unit >= kMostUnits; }
  Unit number_of(std::size_t slot) const {
    return kMostUnits | ((first_number_ + static_cast<Unit>(slot)) & kNumberMask);
  }
  // True if all of these groups are queued.
  bool holds_all(Unit first, std::uint32_t count) const { return slot_of(first) + count <= slots_.size(); }
  std::size_t size() const { return slots_.size(); }
  const Slot& operator[](std::size_t slot) const { return slots_[slot]; }
  const Slot& group(Unit number) const { return slots_[slot_of(number)]; }
  // The contents of a group, kPageBytes long. Precondition: the media stores contents.
  const std::byte* page(Unit number) const { return data_.data() + slot_of(number) * abi::kPageBytes; }

  Unit last_number() const { return number_of(slots_.size() - 1); }
  Slot& back() { return slots_.back(); }
  // Appends a group. Returns the page for its contents; null if the media stores no contents.
  std::byte* push(const Slot& slot);
  // Marks groups that no list references any more. Their places stay taken and are programmed as zeros.
  void invalidate(Unit first, std::uint32_t count);
  // Removes the first `count` groups and returns their contents.
  AlignedBuffer pop(std::uint32_t count);
  void clear();

  void save(RecordWriter& writer, bool everything) const;
  void committed();
  void load(RecordReader& reader);
  // Queues the loaded groups that `map` references, under new numbers.
  void finish_loading(GroupMap& map);

 private:
  struct Loaded {
    Slot slot;
    std::vector<std::byte> data;
  };
  static constexpr Unit kNumberMask = ~kMostUnits;

  std::size_t slot_of(Unit number) const { return (number - first_number_) & kNumberMask; }

  Media& media_;
  std::vector<Slot> slots_;
  AlignedBuffer data_;
  Unit first_number_ = 0;
  std::map<Unit, Loaded> loaded_;  // used until finish_loading
};

}  // namespace kvdrive
