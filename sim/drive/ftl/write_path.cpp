// SPDX-License-Identifier: Apache-2.0
#include "ftl/write_path.hpp"

#include <vector>

namespace kvdrive {

std::size_t WritePath::row_units() const {
  const auto band = state_.bands.open_band();
  return band ? state_.bands.row_units(*band) : state_.geometry.units_per_row();
}

void WritePath::program_rows() {
  while (state_.queue.size() >= row_units()) {
    const auto band = open_band();
    if (!band) return;  // the flash is worn out: the groups stay queued
    if (state_.queue.size() >= state_.bands.row_units(*band)) program_row(*band);
  }
}

// Returns the open band, or opens a new one, from the reserve if necessary. Returns nothing if the flash is worn out.
std::optional<std::uint32_t> WritePath::open_band() {
  BandTable& bands = state_.bands;
  if (!bands.open_band() && !open_next() && bands.has_emptied()) {
    state_.commit();
    open_next();
  }
  return bands.open_band();
}

// For wear levelling, groups that do not change go to the most worn band and new groups to the least worn one.
bool WritePath::open_next() {
  BandTable& bands = state_.bands;
  const bool level = bands.unchanging().has_value();
  while (const auto band = bands.open_next(level)) {
    if (!bands.at(*band).erased && !erase(*band)) continue;
    levelling_due_ = level;
    return true;
  }
  return false;
}

// The data of a block that fails its erase are overwritten instead. In the file, an overwritten block looks like an
// erased one.
bool WritePath::erase(std::uint32_t band) {
  BandTable& bands = state_.bands;
  std::vector<std::uint32_t> failed;
  for (std::uint32_t i = 0, dies = bands.dies(band); i < dies; ++i) {
    erases_done_ = std::max(erases_done_, state_.device.erase(bands.die(band, i), state_.now));
    if (state_.faults.strikes(FaultKind::kEraseFail)) failed.push_back(bands.die(band, i));
  }
  state_.counters.erase_failures += failed.size();
  for (const std::uint32_t die : failed) bands.mark_bad(band, die);
  if (state_.marks.contains(band)) {
    state_.media.discard(bands.first_unit(band, 0), state_.geometry.rows_per_band());
    state_.marks.remove(band);
  }
  if (bands.at(band).state == BandTable::State::kBad) return false;
  bands.erased(band);
  return true;
}

// True if the program of a row fails in some of the band's blocks, which are bad from then on.
bool WritePath::program_fails(std::uint32_t band) {
  bool failed = false;
  for (std::uint32_t i = 0, dies = state_.bands.dies(band); i < dies; ++i) {
    if (!state_.faults.strikes(FaultKind::kProgramFail)) continue;
    ++state_.counters.program_failures;
    state_.bands.fail(band, state_.bands.die(band, i));
    failed = true;
  }
  return failed;
}

// Programs the first groups of the queue. If a block fails, the row is lost and the band is closed, but the groups stay
// queued.
bool WritePath::program_row(std::uint32_t band) {
  BandTable& bands = state_.bands;
  const std::uint32_t units = bands.row_units(band), row = bands.at(band).rows;
  if (program_fails(band)) return false;
  const Unit first = bands.first_unit(band, row);
  Ns ready = state_.now;
  std::vector<Spare> spares(units);
  for (std::uint32_t i = 0; i < units; ++i) {
    const WriteQueue::Slot& slot = state_.queue[i];
    ready = std::max(ready, slot.ready);
    if (!slot.live) continue;
    spares[i] = {.family = slot.family, .data_crc = slot.crc, .order = slot.order, .owner = slot.owner, .written = 1};
    spares[i].crc = spares[i].expected_crc();
  }
  place_queued(first, units);
  AlignedBuffer data = state_.queue.pop(units);

  bands.programmed(band);
  state_.counters.units_programmed += units;
  const Geometry& geometry = state_.geometry;
  const std::uint32_t page = row * geometry.pages_per_program;
  for (std::uint32_t i = 0, dies = units / geometry.units_per_program(); i < dies; ++i) {
    const std::uint32_t bytes = geometry.units_per_program() * abi::kPageBytes;
    programs_done_ = std::max(programs_done_, state_.schedule.program(bands.die(band, i), page, bytes, ready));
  }
  state_.media.program(first, std::move(data), spares);
  return true;
}

// Maps the first `units` groups of the queue to the physical units from `first` on. Consecutive groups are mapped in
// one step.
void WritePath::place_queued(Unit first, std::uint32_t units) {
  const WriteQueue& queue = state_.queue;
  const auto follows = [&queue](std::size_t i) {
    const WriteQueue::Slot &before = queue[i - 1], &slot = queue[i];
    return slot.live && slot.family == before.family && slot.owner.index == before.owner.index + 1 &&
           queue.number_of(i) == queue.number_of(i - 1) + 1;
  };
  for (std::uint32_t i = 0; i < units;) {
    const std::uint32_t start = i++;
    if (!queue[start].live) continue;
    while (i < units && follows(i)) ++i;
    const WriteQueue::Slot& slot = queue[start];
    state_.map.move(slot.family, slot.owner.index, i - start, queue.number_of(start), first + start);
    state_.bands.add_live(first + start, i - start);
  }
}

}  // namespace kvdrive
