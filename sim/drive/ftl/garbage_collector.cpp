// SPDX-License-Identifier: Apache-2.0
#include "ftl/garbage_collector.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

namespace kvdrive {

bool GarbageCollector::make_room() {
  BandTable& bands = state_.bands;
  while (!bands.open_band()) {
    if (bands.free_bands() > BandTable::kReserve) {
      writes_.open_next();
    } else if (!collect()) {
      return false;
    }
  }
  return true;
}

// Frees bands while the caller waits. Returns false if no band can be freed.
bool GarbageCollector::collect() {
  BandTable& bands = state_.bands;
  bands.sweep();
  // Wear levelling in progress is finished first. Otherwise it could be postponed forever.
  const bool late = is_cleaning() && cleaning_.levelling;
  if (!bands.has_emptied() || late) {
    if (!is_cleaning()) {
      const auto band = bands.victim();
      if (!band) return false;
      start_cleaning(*band, false);
    }
    clean(SIZE_MAX);
    state_.now = std::max(state_.now, background_);
  }
  if (!bands.has_emptied()) return false;  // the flash accepts no more programs
  state_.commit();
  return true;
}

// Only bands with enough unreferenced units are collected ahead; `collect` handles the others.
void GarbageCollector::collect_ahead() {
  constexpr std::uint32_t kFreeAhead = BandTable::kReserve + 1;
  constexpr std::uint32_t kMostLivePercent = 75;
  const BandTable& bands = state_.bands;
  if (writes_.take_levelling_due() && !(is_cleaning() && cleaning_.levelling)) {
    // A collection in progress may be postponed, because moved groups stay moved.
    if (const auto cold = bands.unchanging()) start_cleaning(*cold, true);
  }
  if (!is_cleaning() && bands.free_bands() <= kFreeAhead && !bands.has_emptied()) {
    const auto band = bands.victim();
    const auto most = std::uint64_t{state_.geometry.units_per_band()} * kMostLivePercent / 100;
    if (band && bands.at(*band).live_units <= most) start_cleaning(*band, false);
  }
  if (!cleaning_.under_way) return;
  const auto open = bands.open_band();
  const std::uint32_t band_rows = state_.geometry.rows_per_band();
  const std::uint64_t rows_left = open ? band_rows - bands.at(*open).rows : 0;
  const std::uint64_t free = bands.free_bands() > BandTable::kReserve ? bands.free_bands() - BandTable::kReserve : 0;
  const std::uint64_t rows = std::max<std::uint64_t>(rows_left + free * band_rows, 1);
  const std::uint64_t units = (cleaning_.groups.size() - cleaning_.next + rows - 1) / rows;
  // The reserve is not used here.
  if (free == 0 && state_.queue.size() + units > rows_left * writes_.row_units()) return;
  clean(units);
}

bool GarbageCollector::empty(std::uint32_t band) {
  start_cleaning(band, false);
  clean(SIZE_MAX);
  state_.now = std::max(state_.now, background_);
  return state_.bands.at(band).state == BandTable::State::kEmptied;
}

// False if commands emptied the band meanwhile.
bool GarbageCollector::is_cleaning() {
  if (!cleaning_.under_way) return false;
  const BandTable::Band& band = state_.bands.at(cleaning_.band);
  const bool there = band.state == BandTable::State::kFull || band.state == BandTable::State::kFailing;
  if (!there || band.erases != cleaning_.erases) cleaning_ = {};
  return cleaning_.under_way;
}

// A spare names the logical group that its unit was written for, and the map tells if the group is still there. Groups
// move in the order of their lists, so that groups that were written one by one come to lie next to each other.
void GarbageCollector::start_cleaning(std::uint32_t number, bool levelling) {
  const BandTable::Band& band = state_.bands.at(number);
  Cleaning cleaning{.under_way = true, .band = number, .erases = band.erases, .levelling = levelling};
  for (std::uint32_t row = 0; row < band.rows && band.live_units > 0; ++row) {
    const Unit first = state_.bands.first_unit(number, row);
    const std::uint32_t units = state_.bands.row_units(number);
    state_.media.fetch_spares(first, units);
    for (Unit unit = first; unit < first + units; ++unit) {
      const Spare spare = state_.media.spare(unit);
      if (spare.valid() && references({spare.family, spare.owner.index, unit})) {
        cleaning.groups.push_back({spare.family, spare.owner.index, unit});
      }
    }
  }
  if (cleaning.groups.size() < band.live_units) find_lost(cleaning);
  std::ranges::sort(cleaning.groups, {},
                    [](const Moving& group) { return std::tuple(group.family, group.index, group.unit); });
  cleaning_ = std::move(cleaning);
}

// Adds live units with damaged spares. Only the map knows their groups.
void GarbageCollector::find_lost(Cleaning& cleaning) const {
  state_.map.for_each_unit([&](Family family, const Extent& run) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const Unit unit = run.unit + i;
      if (WriteQueue::holds(unit) || unit / state_.geometry.units_per_band() != cleaning.band) continue;
      const Spare spare = state_.media.spare(unit);
      const bool known = spare.valid() && spare.family == family && spare.owner.index == run.index + i;
      if (!known) cleaning.groups.push_back({family, run.index + i, unit});
    }
  });
}

// Moves the next `most` groups, and empties the band after the last one. In device time this runs in the background: it
// occupies flash and buses, but no command waits for its end.
void GarbageCollector::clean(std::uint64_t most) {
  const std::uint32_t band = cleaning_.band;
  const std::size_t row = state_.geometry.units_per_row();
  while (most > 0 && cleaning_.next < cleaning_.groups.size()) {
    const std::size_t count = std::min(
        {static_cast<std::size_t>(std::min<std::uint64_t>(most, row)), cleaning_.groups.size() - cleaning_.next});
    move_groups(std::span(cleaning_.groups).subspan(cleaning_.next, count));
    cleaning_.next += count;
    most -= count;
  }
  if (cleaning_.next < cleaning_.groups.size()) return;
  if (state_.bands.at(band).live_units == 0) state_.bands.emptied(band);
  cleaning_ = {};
}

void GarbageCollector::move_groups(std::span<const Moving> groups) {
  std::vector<UnitRead> reads;
  for (const Moving& group : groups) {
    if (references(group)) reads.push_back({group.unit, abi::kPageBytes});
  }
  std::ranges::sort(reads, {}, &UnitRead::unit);
  background_ = reads_.time_reads(reads, std::max(state_.now, background_), Sink::kFirmware);
  reads_.fetch_units(reads);
  for (const Moving& group : groups) {
    if (references(group)) move_group(group);
  }
  state_.counters.groups_moved += reads.size();
  if (cleaning_.levelling) state_.counters.groups_levelled += reads.size();
  writes_.program_rows();
}

// A damaged unit moves unchanged, with a checksum that still does not match.
void GarbageCollector::move_group(const Moving& group) {
  const Spare spare = state_.media.spare(group.unit);
  WriteQueue::Slot slot{
      .family = group.family, .owner = spare.owner, .crc = spare.data_crc, .order = spare.order, .ready = background_};
  slot.owner.index = group.index;
  std::byte* const to = state_.queue.push(slot);
  if (to != nullptr) {
    std::memcpy(to, state_.media.unit(group.unit), abi::kPageBytes);
    if (!spare.valid()) state_.queue.back().crc = ~crc32c({to, abi::kPageBytes});
  }
  state_.vacate(group.unit, 1);
  state_.map.move(group.family, group.index, 1, group.unit, state_.queue.last_number());
}

}  // namespace kvdrive
