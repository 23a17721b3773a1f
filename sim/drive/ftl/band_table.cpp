// SPDX-License-Identifier: Apache-2.0
#include "ftl/band_table.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace kvdrive {

BandTable::BandTable(const Geometry& geometry, std::uint32_t erases)
    : geometry_(geometry),
      bands_(geometry.blocks_per_die, Band{.erases = erases, .erased = true}),
      free_(geometry.blocks_per_die) {}

std::uint32_t BandTable::dies(std::uint32_t band) const {
  if (layout_.empty()) return geometry_.dies();
  const auto found = layout_.find(band);
  return found == layout_.end() ? geometry_.dies() : static_cast<std::uint32_t>(found->second.size());
}

std::uint32_t BandTable::die(std::uint32_t band, std::uint32_t number) const {
  if (layout_.empty()) return number;
  const auto found = layout_.find(band);
  return found == layout_.end() ? number : found->second[number];
}

Place BandTable::place(Unit unit) const {
  const std::uint32_t band = unit / geometry_.units_per_band(), within = unit % geometry_.units_per_band();
  const std::uint32_t in_row = within % geometry_.units_per_row(), in_program = geometry_.units_per_program();
  // Units of a row that the band does not use belong to no die.
  const std::uint32_t number = std::min(in_row / in_program, dies(band) - 1);
  return {band, within / geometry_.units_per_row(), die(band, number), in_row % in_program};
}

std::uint64_t BandTable::room() const {
  std::uint64_t units = std::uint64_t{geometry_.units_per_band()} * bands_.size();
  for (const auto& [band, blocks] : bad_) {
    const std::uint64_t lost = blocks.size() * std::uint64_t{geometry_.units_per_block()};
    units -= bands_[band].state == State::kFailing ? geometry_.units_per_band() : lost;
  }
  const std::uint64_t reserved = std::uint64_t{geometry_.units_per_band()} * (kReserve + 1);
  return units > reserved ? units - reserved : 0;
}

std::optional<std::uint32_t> BandTable::open_next(bool most_worn) {
  std::optional<std::uint32_t> best;
  for (std::uint32_t band = 0; band < bands_.size(); ++band) {
    if (bands_[band].state != State::kFree) continue;
    const bool better =
        best && (most_worn ? bands_[band].erases > bands_[*best].erases : bands_[band].erases < bands_[*best].erases);
    if (!best || better) best = band;
  }
  if (!best) return best;
  set_state(*best, State::kOpen);
  bands_[*best].rows = 0;
  open_ = best;
  return best;
}

std::optional<std::uint32_t> BandTable::victim() const {
  std::optional<std::uint32_t> fewest;
  for (std::uint32_t number = 0; number < bands_.size(); ++number) {
    const Band& band = bands_[number];
    if (band.state == State::kFailing) return number;
    if (band.state != State::kFull) continue;
    if (!fewest || band.live_units < bands_[*fewest].live_units) fewest = number;
  }
  if (fewest && !has_garbage(*fewest)) return std::nullopt;
  return fewest;
}

std::optional<std::uint32_t> BandTable::unchanging() const {
  std::optional<std::uint32_t> coldest;
  std::uint32_t most_worn = 0;
  for (std::uint32_t number = 0; number < bands_.size(); ++number) {
    const Band& band = bands_[number];
    most_worn = std::max(most_worn, band.erases);
    if (band.state != State::kFull) continue;
    if (!coldest || band.erases < bands_[*coldest].erases) coldest = number;
  }
  if (coldest && most_worn - bands_[*coldest].erases <= kWearGap) return std::nullopt;
  return coldest;
}

void BandTable::programmed(std::uint32_t band) {
  dirty_.insert(band);
  if (++bands_[band].rows < geometry_.rows_per_band()) return;
  set_state(band, State::kFull);
  close(band);
}

void BandTable::change_live(Unit unit, std::uint32_t count, int by) {
  while (count > 0) {
    const std::uint32_t band = unit / geometry_.units_per_band();
    const std::uint32_t here = std::min(count, geometry_.units_per_band() - unit % geometry_.units_per_band());
    bands_[band].live_units += by > 0 ? here : 0 - here;
    unit += here;
    count -= here;
  }
}

void BandTable::fail(std::uint32_t band, std::uint32_t die) {
  bad_[band].push_back({die, true});
  set_state(band, State::kFailing);
  close(band);
}

void BandTable::emptied(std::uint32_t band) {
  set_state(band, State::kEmptied);
  ++emptied_;
}

void BandTable::mark_bad(std::uint32_t band, std::uint32_t die) {
  bad_[band].push_back({die, false});
  auto& dies = layout_[band];
  dies.clear();
  for (std::uint32_t number = 0; number < geometry_.dies(); ++number) {
    if (std::ranges::none_of(bad_[band], [number](const BadBlock& block) { return block.die == number; })) {
      dies.push_back(number);
    }
  }
  dirty_.insert(band);
  if (!dies.empty()) return;
  set_state(band, State::kBad);
  close(band);
}

void BandTable::adopt(std::uint32_t band) {
  close(band);
  bands_[band].rows = geometry_.rows_per_band();
  if (bands_[band].state == State::kFree || bands_[band].state == State::kOpen) set_state(band, State::kFull);
  dirty_.insert(band);
}

void BandTable::erased(std::uint32_t band) {
  bands_[band].erased = true;
  ++bands_[band].erases;
  dirty_.insert(band);
}

void BandTable::sweep() {
  for (std::uint32_t band = 0; band < bands_.size(); ++band) {
    const State state = bands_[band].state;
    if ((state == State::kFull || state == State::kFailing) && bands_[band].live_units == 0) emptied(band);
  }
}

void BandTable::set_state(std::uint32_t number, State state) {
  Band& band = bands_[number];
  if (band.state == State::kFree) --free_;
  if (state == State::kFree) {
    ++free_;
    band.erased = false;
  }
  band.state = state;
  dirty_.insert(number);
}

void BandTable::save(RecordWriter& writer, bool everything) const {
  std::vector<std::uint32_t> numbers;
  if (everything) {
    for (std::uint32_t band = 0; band < bands_.size(); ++band) {
      if (bands_[band].state != State::kFree || bands_[band].erases > 0 || bad_.contains(band)) numbers.push_back(band);
    }
  } else {
    numbers.assign(dirty_.begin(), dirty_.end());
    std::ranges::sort(numbers);
  }
  if (numbers.empty()) return;
  writer.put(RecordType::kBands);
  writer.put(static_cast<std::uint32_t>(numbers.size()));
  for (const std::uint32_t number : numbers) {
    const Band& band = bands_[number];
    // After a crash it is unknown how far an open band was programmed, so no open band is continued.
    const State state = band.state == State::kOpen      ? State::kFull
                        : band.state == State::kEmptied ? State::kFree
                                                        : band.state;
    const auto bad = bad_.find(number);
    const std::size_t blocks = bad == bad_.end() ? 0 : bad->second.size();
    writer.put(Saved{number, band.erases, band.rows, state, static_cast<std::uint32_t>(blocks)});
    for (std::size_t i = 0; i < blocks; ++i) {
      const bool pending = bad->second[i].pending && state != State::kFree;
      writer.put(SavedBad{bad->second[i].die, pending ? 1U : 0U});
    }
  }
  writer.end_record();
}

void BandTable::load(RecordReader& reader) {
  for (auto left = reader.get<std::uint32_t>(); left > 0; --left) {
    const auto saved = reader.get<Saved>();
    if (saved.band >= bands_.size() || saved.state > State::kBad || saved.rows > geometry_.rows_per_band() ||
        saved.bad_blocks > geometry_.dies()) {
      throw std::runtime_error("a band record is damaged");
    }
    bands_[saved.band] = {saved.erases, saved.rows, saved.state, false, 0};
    bad_.erase(saved.band);
    for (const SavedBad& block : reader.get_all<SavedBad>(saved.bad_blocks)) {
      if (block.die >= geometry_.dies()) throw std::runtime_error("a band record is damaged");
      bad_[saved.band].push_back({block.die, block.pending != 0});
    }
  }
}

void BandTable::finish_loading() {
  free_ = 0;
  for (std::uint32_t number = 0; number < bands_.size(); ++number) {
    Band& band = bands_[number];
    // A free band may have been opened and partly programmed after the last commit. So it must be erased before its
    // use.
    band.erased = false;
    band.live_units = 0;
    if (band.state == State::kOpen || band.state == State::kEmptied) band.state = State::kFull;
    free_ += band.state == State::kFree;
  }
  for (const auto& [band, blocks] : bad_) {
    std::vector<std::uint32_t> dies;
    for (std::uint32_t die = 0; die < geometry_.dies(); ++die) {
      const auto is = [die](const BadBlock& block) { return block.die == die && !block.pending; };
      if (std::ranges::none_of(blocks, is)) dies.push_back(die);
    }
    if (dies.empty() && bands_[band].state == State::kFree) {
      bands_[band].state = State::kBad;
      --free_;
    }
    if (dies.size() < geometry_.dies()) layout_[band] = std::move(dies);
  }
  dirty_.clear();
}

void BandTable::committed() {
  std::unordered_set<std::uint32_t> dirty;
  dirty.swap(dirty_);
  for (const std::uint32_t band : dirty) {
    if (bands_[band].state != State::kEmptied) continue;
    set_state(band, State::kFree);
    const auto bad = bad_.find(band);
    if (bad == bad_.end()) continue;
    // From here on the band's layout leaves out the failed blocks.
    const std::vector<BadBlock> blocks = std::exchange(bad->second, {});
    for (const BadBlock& block : blocks) mark_bad(band, block.die);
  }
  dirty_.clear();
  emptied_ = 0;
}

BandTable::Wear BandTable::wear() const {
  Wear wear{.least = bands_.front().erases};
  for (std::uint32_t number = 0; number < bands_.size(); ++number) {
    wear.least = std::min(wear.least, bands_[number].erases);
    wear.most = std::max(wear.most, bands_[number].erases);
    wear.erases += std::uint64_t{bands_[number].erases} * dies(number);
  }
  for (const auto& [band, blocks] : bad_) wear.bad += static_cast<std::uint32_t>(blocks.size());
  return wear;
}

std::uint64_t BandTable::memory_bytes() const {
  std::uint64_t bytes = bands_.size() * sizeof(Band);
  for (const auto& [band, dies] : layout_) bytes += dies.size() * sizeof(dies[0]);
  return bytes;
}

}  // namespace kvdrive
