// SPDX-License-Identifier: Apache-2.0
// Erasing what was forgotten, and nothing else: the bands that hold something of it are emptied and erased at once, not
// when they are needed again. What the file still has of rows that are erased already goes with it.
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "ftl/ftl.hpp"

namespace kvdrive {

void Ftl::condemn(std::span<const Family> families, std::uint32_t session) {
  media_.drain();
  condemning_ = condemned_changed_ = true;
  for (std::uint32_t number = 0; number < geometry_.blocks_per_die; ++number) {
    const BandTable::Band& band = bands_.at(number);
    const std::uint32_t rows_left = geometry_.rows_per_band() - band.rows;
    bool hit = false;
    switch (band.state) {
      case BandTable::State::kFree:  // whoever it belonged to
        hit = !band.erased && !media_.blank(bands_.first_unit(number, 0), geometry_.rows_per_band());
        break;
      case BandTable::State::kOpen:
        media_.discard(bands_.first_unit(number, band.rows), rows_left);  // erased, but the file remembers
        discard_beside(number);
        hit = holds_remains(number, families, session);
        break;
      case BandTable::State::kFull:  // behind its last row may be what was programmed before a loss of power
        discard_beside(number);
        hit = (rows_left > 0 && !media_.blank(bands_.first_unit(number, band.rows), rows_left)) ||
              holds_remains(number, families, session);
        break;
      case BandTable::State::kFailing:
      case BandTable::State::kEmptied:
        hit = true;
        break;
      case BandTable::State::kBad:
        media_.discard(bands_.first_unit(number, 0), geometry_.rows_per_band());
        break;
    }
    if (hit) condemned_.insert(number);
  }
}

// A unit that cannot say what it was written for counts as well, if nobody needs it.
bool Ftl::holds_remains(std::uint32_t number, std::span<const Family> families, std::uint32_t session) const {
  const BandTable::Band& band = bands_.at(number);
  const std::uint32_t units = bands_.row_units(number);
  if (band.live_units == band.rows * units) return false;
  std::uint32_t unknown = 0, known = 0;
  for (std::uint32_t row = 0; row < band.rows; ++row) {
    const Unit first = bands_.first_unit(number, row);
    media_.fetch_spares(first, units);
    for (Unit unit = first; unit < first + units; ++unit) {
      const Spare spare = media_.spare(unit);
      if (!spare.valid()) {
        unknown += spare == Spare{} ? 0 : 1;
        continue;
      }
      if (map_.holds(spare.family, spare.owner.index, unit)) {
        ++known;
        continue;
      }
      const bool by_session = spare.owner.session == session && spare.owner.kind != GroupKind::kBlock;
      if (by_session || std::ranges::binary_search(families, spare.family)) return true;
    }
  }
  return unknown > band.live_units - std::min(known, band.live_units);
}

// Where a band without all its blocks leaves places of a row empty.
void Ftl::discard_beside(std::uint32_t number) {
  const std::uint32_t used = bands_.row_units(number), left = geometry_.units_per_row() - used;
  for (std::uint32_t row = 0; left > 0 && row < bands_.at(number).rows; ++row) {
    media_.discard_units(bands_.first_unit(number, row) + used, left);
  }
}

void Ftl::erase_condemned() {
  const std::vector<std::uint32_t> numbers(condemned_.begin(), condemned_.end());
  if (const auto open = bands_.open_band(); open && condemned_.contains(*open)) bands_.close_open();
  for (const std::uint32_t number : numbers) {
    // It may have been erased meanwhile, to take what was moved.
    if (!condemned_.contains(number)) continue;
    const BandTable::State state = bands_.at(number).state;
    if (state != BandTable::State::kFull && state != BandTable::State::kFailing) continue;
    start_cleaning(number, false);
    clean(SIZE_MAX);
    now_ = std::max(now_, background_);
    if (bands_.at(number).state != BandTable::State::kEmptied) {
      throw std::runtime_error("a flash block that must be erased cannot be emptied");
    }
    if (bands_.free_bands() < BandTable::kReserve) commit_();
  }
  commit_();  // they are free now
  for (const std::uint32_t number : numbers) {
    if (condemned_.contains(number) && bands_.at(number).state == BandTable::State::kFree) erase(number);
  }
  commit_();
}

// After its erase: a block that failed it is overwritten, which the file does not tell apart.
void Ftl::release(std::uint32_t number) {
  media_.discard(bands_.first_unit(number, 0), geometry_.rows_per_band());
  condemned_.erase(number);
  condemned_changed_ = true;
}

void Ftl::pardon() {
  condemned_.clear();
  condemning_ = false;
  condemned_changed_ = true;
}

}  // namespace kvdrive
