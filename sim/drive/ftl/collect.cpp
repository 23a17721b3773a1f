// SPDX-License-Identifier: Apache-2.0
// Making room: garbage collection, wear levelling, bad blocks.
#include <algorithm>

#include "ftl/ftl.hpp"

namespace kvdrive {

// A block with room for a program, from the reserve if need be. Nothing when the die is worn out.
std::optional<std::uint32_t> Ftl::open_block(std::uint32_t die) {
  if (!blocks_.open_block(die) && !open_next(die) && blocks_.has_emptied()) {
    commit_();
    open_next(die);
  }
  return blocks_.open_block(die);
}

// False when no free block can be erased.
bool Ftl::open_next(std::uint32_t die) {
  while (const auto block = blocks_.open_next(die)) {
    if (blocks_.at(die, *block).erased) return true;
    device_.erase(die, now_);
    if (!faults_.strikes(FaultKind::kEraseFail)) {
      blocks_.erased(die, *block);
      return true;
    }
    ++counters_.erase_failures;
    blocks_.mark_bad(die, *block);
  }
  return false;
}

// Leaves the die with a block to program and its reserve untouched. False when it cannot.
bool Ftl::make_room(std::uint32_t die) {
  while (!blocks_.open_block(die)) {
    if (blocks_.free_blocks(die) > BlockTable::kReserve) {
      open_next(die);
      if (const auto block = blocks_.unchanging(die)) empty(die, *block);
    } else if (!collect(die)) {
      return false;
    }
  }
  return true;
}

// Gains free blocks. False when there is nothing to gain.
bool Ftl::collect(std::uint32_t die) {
  blocks_.sweep();
  if (!blocks_.has_emptied()) {
    const auto block = blocks_.victim(die);
    if (!block) return false;
    empty(die, *block);
  }
  if (blocks_.has_emptied()) commit_();
  return true;
}

void Ftl::empty(std::uint32_t die, std::uint32_t block) {
  move_live_units(die, block);
  blocks_.emptied(die, block);
}

// The spares say which group a unit was written for; the group table says whether it is still there.
void Ftl::move_live_units(std::uint32_t die, std::uint32_t number) {
  AlignedBuffer data(abi::kPageBytes);
  const std::uint32_t programs = blocks_.at(die, number).programs;
  for (std::uint32_t program_number = 0; program_number < programs; ++program_number) {
    for (std::uint32_t slot = 0; slot < geometry_.units_per_program(); ++slot) {
      if (blocks_.at(die, number).live_units == 0) return;
      const Unit unit = unit_at(geometry_, {die, number, program_number, slot});
      const Spare spare = media_.spare(unit);
      if (spare.group >= entries_.size() || entries_[spare.group].unit != unit) continue;
      // A damaged unit moves as it is: its checksum stays in the table and keeps saying so.
      const UnitRead read{unit, data.data()};
      media_.read(std::span(&read, 1));
      now_ = std::max(now_, device_.read({.die = die, .page = program_number, .planes = 1, .bytes = abi::kPageBytes},
                                         now_, Sink::kFirmware));
      blocks_.remove_live(unit);
      entries_[spare.group].unit = kQueued;
      dirty_.erase(spare.group);
      push(die, {spare.group, spare.owner}, data.span());
      ++counters_.groups_moved;
      if (queues_[die].slots.size() >= geometry_.units_per_program()) program(die);
    }
  }
}

}  // namespace kvdrive
