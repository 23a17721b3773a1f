// SPDX-License-Identifier: Apache-2.0
// Making room: garbage collection, wear levelling, bad blocks.
#include <algorithm>
#include <cstring>
#include <vector>

#include "ftl/ftl.hpp"

namespace kvdrive {

// A band with room for a row, from the reserve if need be. Nothing when the flash is worn out.
std::optional<std::uint32_t> Ftl::open_band() {
  if (!bands_.open_band() && !open_next() && bands_.has_emptied()) {
    commit_();
    open_next();
  }
  return bands_.open_band();
}

// False when no free band can be erased.
bool Ftl::open_next() {
  while (const auto band = bands_.open_next()) {
    if (bands_.at(*band).erased || erase(*band)) return true;
  }
  return false;
}

// False when none of the band's blocks can be erased.
bool Ftl::erase(std::uint32_t band) {
  std::vector<std::uint32_t> failed;
  for (std::uint32_t i = 0, dies = bands_.dies(band); i < dies; ++i) {
    device_.erase(bands_.die(band, i), now_);
    if (faults_.strikes(FaultKind::kEraseFail)) failed.push_back(bands_.die(band, i));
  }
  counters_.erase_failures += failed.size();
  for (const std::uint32_t die : failed) bands_.mark_bad(band, die);
  if (bands_.at(band).state == BandTable::State::kBad) return false;
  bands_.erased(band);
  return true;
}

// Leaves a band to program and the reserve untouched. False when it cannot.
bool Ftl::make_room() {
  while (!bands_.open_band()) {
    if (bands_.free_bands() > BandTable::kReserve) {
      open_next();
      if (const auto band = bands_.unchanging()) empty(*band);
    } else if (!collect()) {
      return false;
    }
  }
  return true;
}

// Gains free bands. False when there is nothing to gain.
bool Ftl::collect() {
  bands_.sweep();
  if (!bands_.has_emptied()) {
    const auto band = bands_.victim();
    if (!band) return false;
    empty(*band);
  }
  if (!bands_.has_emptied()) return false;  // the flash takes no more programs
  commit_();
  return true;
}

void Ftl::empty(std::uint32_t band) {
  move_live_units(band);
  if (bands_.at(band).live_units == 0) bands_.emptied(band);
}

// The spares say what the units were written for; the map says whether it is still there.
void Ftl::move_live_units(std::uint32_t band) {
  for (std::uint32_t row = 0; row < bands_.at(band).rows && bands_.at(band).live_units > 0; ++row) {
    const Unit first = bands_.first_unit(band, row);
    media_.fetch(first, bands_.row_units(band));
    for (Unit unit = first; unit < first + bands_.row_units(band); ++unit) {
      const Spare spare = media_.spare(unit);
      if (spare.valid() && map_.holds(spare.family, spare.owner.index, unit)) {
        move_unit(unit, spare.family, spare.owner.index);
      }
    }
  }
  if (bands_.at(band).live_units == 0) return;
  // What is left lost its spare: only the map knows it.
  std::vector<std::pair<Family, Extent>> lost;
  map_.for_each_unit([&](Family family, const Extent& run) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const Unit unit = run.unit + i;
      if (!waits(unit) && unit / geometry_.units_per_band() == band) lost.push_back({family, {run.index + i, 1, unit}});
    }
  });
  for (const auto& [family, run] : lost) move_unit(run.unit, family, run.index);
}

// A damaged unit moves as it is: its checksum keeps saying so.
void Ftl::move_unit(Unit unit, Family family, std::uint32_t index) {
  const Spare spare = media_.spare(unit);
  const Place place = bands_.place(unit);
  now_ = std::max(
      now_,
      device_.read(
          {.die = place.die, .page = place.row * geometry_.pages_per_program, .planes = 1, .bytes = abi::kPageBytes},
          now_, Sink::kFirmware));
  Slot slot{.family = family, .owner = spare.owner, .crc = spare.data_crc};
  slot.owner.index = index;
  std::byte* const to = push(slot);
  if (to != nullptr) {
    std::memcpy(to, media_.unit(unit), abi::kPageBytes);
    if (!spare.valid()) queue_.back().crc = ~crc32c({to, abi::kPageBytes});
  }
  bands_.remove_live(unit, 1);
  map_.move(family, index, unit, number_of(queue_.size() - 1));
  ++counters_.groups_moved;
  program_rows();
}

}  // namespace kvdrive
