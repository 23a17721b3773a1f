// SPDX-License-Identifier: Apache-2.0
// Making room: garbage collection and wear levelling, both in the background as long as they keep up; bad blocks.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>
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

// False when no free band can be erased. Data that do not change go to the most worn band, new ones to the least worn.
bool Ftl::open_next() {
  const bool level = bands_.unchanging().has_value();
  while (const auto band = bands_.open_next(level)) {
    if (!bands_.at(*band).erased && !erase(*band)) continue;
    levelling_due_ = level;
    return true;
  }
  return false;
}

// False when none of the band's blocks can be erased.
bool Ftl::erase(std::uint32_t band) {
  std::vector<std::uint32_t> failed;
  for (std::uint32_t i = 0, dies = bands_.dies(band); i < dies; ++i) {
    erases_done_ = std::max(erases_done_, device_.erase(bands_.die(band, i), now_));
    if (faults_.strikes(FaultKind::kEraseFail)) failed.push_back(bands_.die(band, i));
  }
  counters_.erase_failures += failed.size();
  for (const std::uint32_t die : failed) bands_.mark_bad(band, die);
  if (condemned_.contains(band)) release(band);
  if (bands_.at(band).state == BandTable::State::kBad) return false;
  bands_.erased(band);
  return true;
}

// Leaves a band to program and the reserve untouched. False when it cannot.
bool Ftl::make_room() {
  while (!bands_.open_band()) {
    if (bands_.free_bands() > BandTable::kReserve) {
      open_next();
    } else if (!collect()) {
      return false;
    }
  }
  return true;
}

// Gains free bands while the caller waits. False when there is nothing to gain.
bool Ftl::collect() {
  bands_.sweep();
  const bool late = is_cleaning() && cleaning_.levelling;  // else it would be put off for ever
  if (!bands_.has_emptied() || late) {
    if (!is_cleaning()) {
      const auto band = bands_.victim();
      if (!band) return false;
      start_cleaning(*band, false);
    }
    clean(SIZE_MAX);
    now_ = std::max(now_, background_);
  }
  if (!bands_.has_emptied()) return false;  // the flash takes no more programs
  commit_();
  return true;
}

// After a row was programmed: enough of a band is moved away that the next free one is there when it is needed. What
// holds mostly live groups is left to `collect`.
void Ftl::collect_ahead() {
  constexpr std::uint32_t kFreeAhead = BandTable::kReserve + 1;
  constexpr std::uint32_t kMostLivePercent = 75;
  if (std::exchange(levelling_due_, false) && !(is_cleaning() && cleaning_.levelling)) {
    // A collection under way can wait: what it moved stays moved.
    if (const auto cold = bands_.unchanging()) start_cleaning(*cold, true);
  }
  if (!is_cleaning() && bands_.free_bands() <= kFreeAhead && !bands_.has_emptied()) {
    const auto band = bands_.victim();
    const auto most = std::uint64_t{geometry_.units_per_band()} * kMostLivePercent / 100;
    if (band && bands_.at(*band).live_units <= most) start_cleaning(*band, false);
  }
  if (!cleaning_.under_way) return;
  const auto open = bands_.open_band();
  const std::uint64_t rows_left = open ? geometry_.rows_per_band() - bands_.at(*open).rows : 0;
  const std::uint64_t free = bands_.free_bands() > BandTable::kReserve ? bands_.free_bands() - BandTable::kReserve : 0;
  const std::uint64_t rows = std::max<std::uint64_t>(rows_left + free * geometry_.rows_per_band(), 1);
  const std::uint64_t units = (cleaning_.left.size() - cleaning_.next + rows - 1) / rows;
  // Not at the cost of the reserve.
  if (free == 0 && queue_.size() + units > rows_left * row_units()) return;
  clean(units);
}

// Commands may have emptied the band meanwhile.
bool Ftl::is_cleaning() {
  if (!cleaning_.under_way) return false;
  const BandTable::Band& band = bands_.at(cleaning_.band);
  const bool there = band.state == BandTable::State::kFull || band.state == BandTable::State::kFailing;
  if (!there || band.erases != cleaning_.erases) cleaning_ = {};
  return cleaning_.under_way;
}

// The spares say what the units were written for; the map says whether it is still there. In the order of the lists:
// groups that were written one by one come to lie side by side.
void Ftl::start_cleaning(std::uint32_t band, bool levelling) {
  Cleaning cleaning{.under_way = true, .band = band, .erases = bands_.at(band).erases, .levelling = levelling};
  for (std::uint32_t row = 0; row < bands_.at(band).rows && bands_.at(band).live_units > 0; ++row) {
    const Unit first = bands_.first_unit(band, row);
    media_.fetch_spares(first, bands_.row_units(band));
    for (Unit unit = first; unit < first + bands_.row_units(band); ++unit) {
      const Spare spare = media_.spare(unit);
      if (spare.valid() && map_.holds(spare.family, spare.owner.index, unit)) {
        cleaning.left.push_back({spare.family, spare.owner.index, unit});
      }
    }
  }
  if (cleaning.left.size() < bands_.at(band).live_units) find_lost(cleaning);
  std::ranges::sort(cleaning.left, {},
                    [](const Moving& group) { return std::tuple(group.family, group.index, group.unit); });
  cleaning_ = std::move(cleaning);
}

// Units that lost their spares: only the map knows them.
void Ftl::find_lost(Cleaning& cleaning) const {
  map_.for_each_unit([&](Family family, const Extent& run) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const Unit unit = run.unit + i;
      if (waits(unit) || unit / geometry_.units_per_band() != cleaning.band) continue;
      const Spare spare = media_.spare(unit);
      const bool known = spare.valid() && spare.family == family && spare.owner.index == run.index + i;
      if (!known) cleaning.left.push_back({family, run.index + i, unit});
    }
  });
}

// Moves the next groups, `most` of them; the band is emptied after the last one. In device time this runs beside the
// commands: it takes flash and buses, but nobody waits for it.
void Ftl::clean(std::uint64_t most) {
  const std::uint32_t band = cleaning_.band;
  const std::size_t row = geometry_.units_per_row();
  while (most > 0 && cleaning_.next < cleaning_.left.size()) {
    const std::size_t count = std::min(
        {static_cast<std::size_t>(std::min<std::uint64_t>(most, row)), cleaning_.left.size() - cleaning_.next});
    move_units(std::span(cleaning_.left).subspan(cleaning_.next, count));
    cleaning_.next += count;
    most -= count;
  }
  if (cleaning_.next < cleaning_.left.size()) return;
  if (bands_.at(band).live_units == 0) bands_.emptied(band);
  cleaning_ = {};
}

void Ftl::move_units(std::span<const Moving> groups) {
  std::vector<UnitRead> reads;
  for (const Moving& group : groups) {
    if (map_.holds(group.family, group.index, group.unit)) reads.push_back({group.unit, abi::kPageBytes});
  }
  std::ranges::sort(reads, {}, &UnitRead::unit);
  background_ = time_reads(reads, std::max(now_, background_), Sink::kFirmware);
  fetch_units(reads);
  for (const Moving& group : groups) {
    if (map_.holds(group.family, group.index, group.unit)) move_unit(group);
  }
  counters_.groups_moved += reads.size();
  if (cleaning_.levelling) counters_.groups_levelled += reads.size();
  program_rows();
}

// A damaged unit moves as it is: its checksum keeps saying so.
void Ftl::move_unit(const Moving& group) {
  const Spare spare = media_.spare(group.unit);
  Slot slot{.family = group.family, .owner = spare.owner, .crc = spare.data_crc, .ready = background_};
  slot.owner.index = group.index;
  std::byte* const to = push(slot);
  if (to != nullptr) {
    std::memcpy(to, media_.unit(group.unit), abi::kPageBytes);
    if (!spare.valid()) queue_.back().crc = ~crc32c({to, abi::kPageBytes});
  }
  bands_.remove_live(group.unit, 1);
  map_.move(group.family, group.index, 1, group.unit, number_of(queue_.size() - 1));
}

}  // namespace kvdrive
