// SPDX-License-Identifier: Apache-2.0
// The write queue: groups in drive memory until they fill a row of the open band.
//
// A queued group has a number of its own in the place of a physical unit, kMostUnits or more. Numbers rise by one from
// group to group and start again after the last one.
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
    Ns ready = 0;             // device time from which on the group can be programmed
    bool saved = false;       // the journal holds the contents
    bool live = true;         // a list still references the group
  };

  explicit WriteQueue(Media& media) : media_(media) {}

  // True if the number is that of a queued group.
  static bool holds(Unit unit) { return unit >= kMostUnits; }
  Unit number_of(std::size_t slot) const {
    return kMostUnits | ((first_number_ + static_cast<Unit>(slot)) & kNumberMask);
  }
  // True if all of these groups are in the queue.
  bool holds_all(Unit first, std::uint32_t count) const { return slot_of(first) + count <= slots_.size(); }
  std::size_t size() const { return slots_.size(); }
  const Slot& operator[](std::size_t slot) const { return slots_[slot]; }
  const Slot& group(Unit number) const { return slots_[slot_of(number)]; }
  // kPageBytes. Precondition: the media keeps contents.
  const std::byte* page(Unit number) const { return data_.data() + slot_of(number) * abi::kPageBytes; }

  Unit last_number() const { return number_of(slots_.size() - 1); }
  Slot& back() { return slots_.back(); }
  // Appends a group. Returns the page for its contents; null if the media keeps none.
  std::byte* push(const Slot& slot);
  // No list references these groups any more. Their places stay taken, and are programmed as zeros.
  void invalidate(Unit first, std::uint32_t count);
  // Removes the first `count` groups and returns their contents.
  AlignedBuffer pop(std::uint32_t count);
  void clear();

  void save(RecordWriter& writer, bool everything) const;
  void committed();
  void load(RecordReader& reader);
  // Queues the loaded groups that `map` references again, under new numbers.
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
  std::map<Unit, Loaded> loaded_;  // until finish_loading
};

}  // namespace kvdrive
