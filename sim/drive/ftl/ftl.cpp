// SPDX-License-Identifier: Apache-2.0
#include "ftl/ftl.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvdrive {

Ftl::Ftl(const Superblock& superblock, Media& media, NandDevice& device, Faults& faults, std::function<void()> commit)
    : geometry_(superblock.geometry),
      capacity_(superblock.capacity_units),
      media_(media),
      device_(device),
      faults_(faults),
      commit_(std::move(commit)),
      blocks_(geometry_),
      queues_(geometry_.dies()) {}

GroupId Ftl::put(const Owner& owner, std::uint32_t stripe, std::span<const std::byte> data) {
  if (live_ >= capacity_ || faults_.strikes(FaultKind::kFull)) throw DriveFull();
  media_.drain_some();
  const std::uint32_t die = choose_die(stripe);
  if (unused_.empty()) {
    unused_.push_back(static_cast<GroupId>(entries_.size()));
    entries_.emplace_back();
  }
  const GroupId group = unused_.back();
  unused_.pop_back();
  entries_[group] = {kQueued, crc32c(data), 1};
  ++live_;
  ++counters_.groups_written;
  push(die, {group, owner}, data);
  try {
    if (queues_[die].slots.size() >= geometry_.units_per_program()) program(die);
  } catch (...) {  // a commit failed
    release(group);
    throw;
  }
  return group;
}

// The die of the stripe, or the next one with room for the program that another group may make due.
std::uint32_t Ftl::choose_die(std::uint32_t stripe) {
  for (std::uint32_t i = 0; i < geometry_.dies(); ++i) {
    const std::uint32_t die = (stripe + i) % geometry_.dies();
    const std::size_t queued = queues_[die].slots.size();
    if (blocks_.live_units(die) + queued >= blocks_.room(die)) continue;
    if (queued + 1 < geometry_.units_per_program() || make_room(die)) return die;
  }
  throw DriveFull();
}

std::uint64_t Ftl::available() const {
  std::uint64_t room = 0;
  for (std::uint32_t die = 0; die < geometry_.dies(); ++die) {
    const std::uint64_t used = blocks_.live_units(die) + queues_[die].slots.size();
    room += blocks_.room(die) > used ? blocks_.room(die) - used : 0;
  }
  return std::min(room, capacity_ > live_ ? capacity_ - live_ : 0);
}

void Ftl::push(std::uint32_t die, const Slot& slot, std::span<const std::byte> data) {
  Queue& queue = queues_[die];
  queued_[slot.group] = {die, static_cast<std::uint32_t>(queue.slots.size())};
  queue.slots.push_back(slot);
  queue.data.append(data.first(abi::kPageBytes));
}

// The last slot takes the place of the one that goes.
void Ftl::drop_from_queue(GroupId group) {
  const auto [die, slot] = queued_.at(group);
  queued_.erase(group);
  Queue& queue = queues_[die];
  const std::size_t last = queue.slots.size() - 1;
  if (slot != last) {
    queue.slots[slot] = queue.slots[last];
    std::memcpy(queue.data.data() + std::size_t{slot} * abi::kPageBytes, queue.data.data() + last * abi::kPageBytes,
                abi::kPageBytes);
    queued_[queue.slots[slot].group].slot = slot;
  }
  queue.slots.pop_back();
  queue.data.resize(last * abi::kPageBytes);
}

void Ftl::release(GroupId group) {
  Entry& entry = entries_[group];
  if (--entry.references > 0) return;
  if (entry.unit == kQueued) {
    drop_from_queue(group);
  } else {
    blocks_.remove_live(entry.unit);
  }
  entry.unit = kQueued;
  dirty_.erase(group);
  unused_.push_back(group);
  --live_;
}

// Programs the first units of the queue. A block whose program fails is left, and the units go to another one; on a die
// without blocks they stay in memory.
void Ftl::program(std::uint32_t die) {
  const std::uint32_t units = geometry_.units_per_program();
  std::optional<std::uint32_t> block = open_block(die);
  while (block && faults_.strikes(FaultKind::kProgramFail)) {
    ++counters_.program_failures;
    blocks_.fail(die, *block);
    block = open_block(die);
  }
  if (!block) return;
  Queue& queue = queues_[die];
  const Place place{die, *block, blocks_.at(die, *block).programs, 0};
  const Unit first = unit_at(geometry_, place);
  AlignedBuffer data;
  data.append(queue.data.span().first(std::size_t{units} * abi::kPageBytes));
  std::vector<Spare> spares(units);
  for (std::uint32_t i = 0; i < units; ++i) {
    const Slot& slot = queue.slots[i];
    Entry& entry = entries_[slot.group];
    spares[i] = {.group = slot.group, .data_crc = entry.crc, .owner = slot.owner, .written = 1};
    spares[i].crc = spares[i].expected_crc();
  }
  media_.program(first, std::move(data), spares);
  for (std::uint32_t i = 0; i < units; ++i) {
    const GroupId group = queue.slots[i].group;
    entries_[group].unit = first + i;
    blocks_.add_live(first + i);
    queued_.erase(group);
    dirty_.insert(group);
  }
  queue.slots.erase(queue.slots.begin(), queue.slots.begin() + units);
  const std::size_t left = queue.data.size() - std::size_t{units} * abi::kPageBytes;
  if (left > 0) std::memmove(queue.data.data(), queue.data.data() + std::size_t{units} * abi::kPageBytes, left);
  queue.data.resize(left);
  for (std::uint32_t i = 0; i < queue.slots.size(); ++i) queued_[queue.slots[i].group].slot = i;

  blocks_.programmed(die, *block);
  counters_.units_programmed += units;
  const std::uint32_t bytes = units * abi::kPageBytes;
  const Ns done = device_.program(die, place.program, bytes, now_);
  programs_done_ = std::max(programs_done_, done);
}

std::uint64_t Ftl::metadata_bytes() const {
  std::uint64_t bytes = entries_.size() * (sizeof(Entry) + sizeof(GroupId));  // the table, and the owner's list
  bytes += std::uint64_t{geometry_.dies()} * geometry_.blocks_per_die * sizeof(BlockTable::Block);
  return bytes;
}

}  // namespace kvdrive
