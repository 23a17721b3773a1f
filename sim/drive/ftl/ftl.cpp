// SPDX-License-Identifier: Apache-2.0
#include "ftl/ftl.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvdrive {

ListId Ftl::create_list() {
  if (!state_.order.reserved(state_.map)) state_.commit();
  return state_.map.create();
}

void Ftl::cut(ListId list, std::uint32_t from) {
  state_.map.cut(list, from, [this](Unit unit, std::uint32_t count) { state_.free_units(unit, count); });
}

void Ftl::drop_list(ListId list) {
  state_.map.drop(list, [this](Unit unit, std::uint32_t count) { state_.free_units(unit, count); });
}

void Ftl::remove(ListId list, std::uint32_t index) {
  state_.map.remove(list, index, [this](Unit unit, std::uint32_t count) { state_.free_units(unit, count); });
}

void Ftl::remove_behind_first(ListId list, std::uint32_t count) {
  state_.map.remove_behind_first(list, count,
                                 [this](Unit unit, std::uint32_t freed) { state_.free_units(unit, freed); });
}

void Ftl::put(ListId list, Owner owner, std::span<const std::byte> first, std::span<const std::byte> rest) {
  const bool full = state_.live >= capacity_ || state_.live >= state_.bands.room();
  if (full || state_.faults.strikes(FaultKind::kFull) || metadata_left() == 0) throw DriveFull();
  while (state_.queue.size() + 1 >= writes_.row_units() && !state_.bands.open_band()) {
    if (!collector_.make_room()) throw DriveFull();
  }
  const Family family = state_.map.family(list);
  const std::uint32_t position = std::exchange(owner.index, state_.map.index(list, owner.index));
  owner.removals = static_cast<std::uint8_t>(state_.map.removals(list));
  std::byte* const to = state_.queue.push({.family = family, .owner = owner, .order = state_.order.take()});
  if (to != nullptr) {
    if (!first.empty()) std::memcpy(to, first.data(), first.size());
    if (!rest.empty()) std::memcpy(to + first.size(), rest.data(), rest.size());
    const std::size_t used = first.size() + rest.size();
    if (used < abi::kPageBytes) std::memset(to + used, 0, abi::kPageBytes - used);
    state_.queue.back().crc = crc32c({to, abi::kPageBytes});
  }
  const auto old = state_.map.at(list, position);
  state_.map.set(list, position, state_.queue.last_number());
  ++state_.live;
  if (old && !state_.map.holds(family, owner.index, *old)) state_.free_units(*old, 1);
  ++state_.counters.groups_written;
  const std::uint64_t programmed = state_.counters.units_programmed;
  writes_.program_rows();
  if (state_.counters.units_programmed > programmed) collector_.collect_ahead();
}

std::uint64_t Ftl::available() const {
  const std::uint64_t room = std::min(state_.bands.room(), capacity_);
  return room > state_.live ? room - state_.live : 0;
}

std::uint64_t Ftl::run_bytes(std::span<const ListId> lists) const {
  std::uint64_t bytes = 0;
  for (const ListId list : lists) bytes += state_.map.exists(list) ? state_.map.run_bytes(list) : 0;
  return bytes;
}

std::uint32_t Ftl::groups(ListId list, std::uint32_t count) const {
  std::uint32_t groups = 0;
  state_.map.for_each(list, 0, count, [&groups](const Extent& run, std::uint32_t) { groups += run.count; });
  return groups;
}

bool Ftl::owner_of(ListId list, std::uint32_t index, Owner& owner) const {
  const Unit unit = state_.map.unit(list, index);
  if (WriteQueue::holds(unit)) {
    owner = state_.queue.group(unit).owner;
    return true;
  }
  const Spare spare = state_.media.spare(unit);
  owner = spare.owner;
  return spare.valid();
}

}  // namespace kvdrive
