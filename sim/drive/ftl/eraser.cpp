// SPDX-License-Identifier: Apache-2.0
#include "ftl/eraser.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace kvdrive {

void Eraser::mark(std::span<const Family> families, std::uint32_t session) {
  Media& media = state_.media;
  media.drain();
  forget_kept();
  state_.marks.begin();
  const std::uint32_t band_rows = state_.geometry.rows_per_band();
  for (std::uint32_t number = 0; number < state_.geometry.blocks_per_die; ++number) {
    const BandTable::Band& band = state_.bands.at(number);
    const std::uint32_t rows_left = band_rows - band.rows;
    const Unit first = state_.bands.first_unit(number, 0), first_left = state_.bands.first_unit(number, band.rows);
    bool hit = false;
    switch (band.state) {
      case BandTable::State::kFree:  // its groups may have belonged to any session
        hit = !band.erased && !media.blank(first, band_rows);
        break;
      case BandTable::State::kOpen:
        media.discard(first_left, rows_left);  // these rows are erased, but the file still has their old contents
        discard_unused_units(number);
        hit = holds_dropped(number, families, session);
        break;
      case BandTable::State::kFull:  // rows behind the last one may have been programmed before a power loss
        discard_unused_units(number);
        hit = (rows_left > 0 && !media.blank(first_left, rows_left)) || holds_dropped(number, families, session);
        break;
      case BandTable::State::kFailing:
      case BandTable::State::kEmptied:
        hit = true;
        break;
      case BandTable::State::kBad:
        media.discard(first, band_rows);
        break;
    }
    if (hit) state_.marks.add(number);
  }
}

// A unit with a damaged spare does not tell which group it was written for. It counts as a match too, unless a list
// references it.
bool Eraser::holds_dropped(std::uint32_t number, std::span<const Family> families, std::uint32_t session) const {
  const BandTable::Band& band = state_.bands.at(number);
  const std::uint32_t units = state_.bands.row_units(number);
  if (band.live_units == band.rows * units) return false;
  std::uint32_t unknown = 0, known = 0;
  for (std::uint32_t row = 0; row < band.rows; ++row) {
    const Unit first = state_.bands.first_unit(number, row);
    state_.media.fetch_spares(first, units);
    for (Unit unit = first; unit < first + units; ++unit) {
      const Spare spare = state_.media.spare(unit);
      if (!spare.valid()) {
        unknown += spare == Spare{} ? 0 : 1;
        continue;
      }
      if (state_.map.holds(spare.family, spare.owner.index, unit)) {
        ++known;
        continue;
      }
      const GroupKind kind = spare.owner.kind;
      const bool of_session = kind != GroupKind::kBlock && kind != GroupKind::kValue;
      const bool by_session = of_session && spare.owner.session == session;
      if (by_session || std::ranges::binary_search(families, spare.family)) return true;
    }
  }
  return unknown > band.live_units - std::min(known, band.live_units);
}

// Drive memory keeps no copy of what is erased.
void Eraser::forget_kept() {
  state_.hot.clear();
  state_.index.clear();
}

// In a band with bad blocks the last units of each row are unused.
void Eraser::discard_unused_units(std::uint32_t number) {
  const std::uint32_t used = state_.bands.row_units(number), left = state_.geometry.units_per_row() - used;
  for (std::uint32_t row = 0; left > 0 && row < state_.bands.at(number).rows; ++row) {
    state_.media.discard_units(state_.bands.first_unit(number, row) + used, left);
  }
}

void Eraser::erase_marked() {
  BandTable& bands = state_.bands;
  const EraseMarks& marks = state_.marks;
  const std::vector<std::uint32_t> numbers(marks.bands().begin(), marks.bands().end());
  if (const auto open = bands.open_band(); open && marks.contains(*open)) bands.close_open();
  for (const std::uint32_t number : numbers) {
    // The band may have been erased meanwhile, to take groups that moved.
    if (!marks.contains(number)) continue;
    const BandTable::State state = bands.at(number).state;
    if (state != BandTable::State::kFull && state != BandTable::State::kFailing) continue;
    if (!collector_.empty(number)) throw std::runtime_error("a flash block that must be erased cannot be emptied");
    if (bands.free_bands() < BandTable::kReserve) state_.commit();
  }
  state_.commit();  // emptied bands become free
  for (const std::uint32_t number : numbers) {
    if (marks.contains(number) && bands.at(number).state == BandTable::State::kFree) writes_.erase(number);
  }
  state_.commit();
}

void Eraser::erase_all() {
  BandTable& bands = state_.bands;
  state_.queue.clear();
  forget_kept();
  bands.close_open();
  bands.sweep();
  state_.commit();  // emptied bands become free
  for (std::uint32_t band = 0; band < state_.geometry.blocks_per_die; ++band) {
    if (bands.at(band).state == BandTable::State::kFree && !bands.at(band).erased) writes_.erase(band);
  }
  state_.commit();
}

}  // namespace kvdrive
