// SPDX-License-Identifier: Apache-2.0
#include "ftl/read_path.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "ftl/group_stream.hpp"

namespace kvdrive {

const std::byte* ReadPath::page(Unit unit) const {
  if (!WriteQueue::holds(unit)) return state_.media.unit(unit);
  return state_.media.keeps_payload() ? state_.queue.page(unit) : state_.media.unit(0);
}

bool ReadPath::intact(Family family, std::uint32_t index, Unit unit, const std::byte* page) const {
  if (!state_.media.keeps_payload()) return true;
  const std::uint32_t crc = crc32c({page, abi::kPageBytes});
  if (WriteQueue::holds(unit)) return state_.queue.group(unit).crc == crc;
  const Spare spare = state_.media.spare(unit);
  return spare.written == 1 && spare.family == family && spare.owner.index == index && spare.data_crc == crc;
}

const std::byte* ReadPath::in_memory(Unit unit) const {
  return WriteQueue::holds(unit) ? page(unit) : state_.media.unwritten_unit(unit);
}

void ReadPath::start_read(DirectReads& reads, Unit first, std::uint32_t count, std::byte* to,
                          DirectReads::Batch& batch) const {
  const DirectReads::Part part{{to, std::size_t{count} * abi::kPageBytes}, &batch};
  start_read(reads, first, count, std::span(&part, 1));
}

void ReadPath::start_read(DirectReads& reads, Unit first, std::uint32_t count,
                          std::span<const DirectReads::Part> parts) const {
  state_.media.expect_spares(first, count);
  reads.start(state_.media.file_offset(first), parts);
}

bool ReadPath::count_read(Unit unit, Sink sink) {
  ++reads_for(sink);
  state_.counters.queued_reads += WriteQueue::holds(unit) ? 1 : 0;
  return strikes(unit);
}

ReadResult ReadPath::read_directly(std::span<const GroupRead> reads, Ns ready, Sink sink) {
  std::vector<GroupStream::Group> groups;
  groups.reserve(reads.size());
  for (const GroupRead& read : reads) groups.push_back({read.list, read.index});
  GroupStream stream(*this, *direct_, std::move(groups), DirectReads::kBuffers, sink);
  ReadResult result{true, ready};
  for (std::size_t done = 0; done < reads.size();) {
    const auto piece = stream.next();
    for (const std::byte* page : piece.pages) {
      const GroupRead& read = reads[done++];
      std::memcpy(read.out, page, abi::kPageBytes);
      const Unit unit = state_.map.unit(read.list, read.index);
      const std::uint32_t index = state_.map.index(read.list, read.index);
      if (piece.whole && intact(state_.map.family(read.list), index, unit, read.out)) continue;
      ++state_.counters.lost_groups;
      result.whole = false;
    }
  }
  return result;
}

ReadResult ReadPath::read(std::span<const GroupRead> reads, Ns ready, Sink sink) {
  if (direct() != nullptr) return read_directly(reads, ready, sink);
  return copy(reads, sink, [&](std::span<const UnitRead> units) { return time_reads(units, ready, sink); });
}

ReadResult ReadPath::start(std::span<const GroupRead> reads, Ns ready, TransferKind kind) {
  if (direct() != nullptr) return read_directly(reads, ready, Sink::kHost);
  return copy(reads, Sink::kHost, [&](std::span<const UnitRead> units) {
    if (!state_.device.timing().modelled()) return ready;
    const FlashSchedule::Range range{state_.map.family(reads.front().list), reads.front().index,
                                     reads.back().index + 1};
    state_.schedule.start(range, pages_of(units), ready, kind);
    return ready;
  });
}

// `time` returns when the reads from the flash are done.
template <typename Time>
ReadResult ReadPath::copy(std::span<const GroupRead> reads, Sink sink, Time time) {
  std::vector<UnitRead> from_flash;
  std::vector<Unit> units;
  units.reserve(reads.size());
  for (const GroupRead& read : reads) {
    units.push_back(state_.map.unit(read.list, read.index));
    if (WriteQueue::holds(units.back())) {
      ++state_.counters.queued_reads;
    } else {
      from_flash.push_back({units.back(), read.wanted_bytes});
    }
  }
  reads_for(sink) += reads.size();
  ReadResult result{true, time(from_flash)};
  fetch_units(from_flash);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    std::memcpy(reads[i].out, page(units[i]), abi::kPageBytes);
    const bool failed = strikes(units[i]);
    const std::uint32_t index = state_.map.index(reads[i].list, reads[i].index);
    if (!failed && intact(state_.map.family(reads[i].list), index, units[i], reads[i].out)) continue;
    ++state_.counters.lost_groups;
    result.whole = false;
  }
  return result;
}

ReadResult ReadPath::view(ListId list, const std::vector<bool>& wanted, Ns ready, Sink sink,
                          std::vector<const std::byte*>& pages) {
  std::vector<UnitRead> from_flash;
  ReadResult result;
  const std::uint64_t queued = state_.counters.queued_reads;
  state_.map.for_each(list, 0, static_cast<std::uint32_t>(wanted.size()), [&](const Extent& run, std::uint32_t) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const Unit unit = run.unit + i;
      pages.push_back(wanted[run.index + i] ? page(unit) : nullptr);
      if (pages.back() == nullptr) continue;
      if (WriteQueue::holds(unit)) {
        ++state_.counters.queued_reads;
      } else {
        from_flash.push_back({unit, abi::kPageBytes});
      }
      if (!strikes(unit)) continue;
      ++state_.counters.lost_groups;
      result.whole = false;
    }
  });
  reads_for(sink) += from_flash.size() + (state_.counters.queued_reads - queued);
  result.done = time_reads(from_flash, ready, sink);
  return result;
}

void ReadPath::fetch(ListId list, const std::vector<bool>& wanted) const {
  state_.map.for_each(list, 0, static_cast<std::uint32_t>(wanted.size()), [&](const Extent& run, std::uint32_t) {
    if (WriteQueue::holds(run.unit)) return;
    for (std::uint32_t i = 0; i < run.count;) {
      const std::uint32_t first = i;
      while (i < run.count && wanted[run.index + i]) ++i;
      state_.media.fetch(run.unit + first, i - first);
      while (i < run.count && !wanted[run.index + i]) ++i;
    }
  });
}

bool ReadPath::fetched(ListId list, const std::vector<bool>& wanted) const {
  bool all = true;
  state_.map.for_each(list, 0, static_cast<std::uint32_t>(wanted.size()), [&](const Extent& run, std::uint32_t) {
    all = all && (WriteQueue::holds(run.unit) || state_.media.fetched(run.unit, run.count));
  });
  return all;
}

std::uint32_t ReadPath::damaged(ListId list, std::uint32_t first, std::span<const std::byte* const> pages) const {
  const Family family = state_.map.family(list);
  std::uint32_t count = 0;
  const auto end = first + static_cast<std::uint32_t>(pages.size());
  state_.map.for_each(list, first, end, [&](const Extent& run, std::uint32_t shift) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const std::byte* const page = pages[run.index + i - first];
      if (page != nullptr && !intact(family, run.index + shift + i, run.unit + i, page)) ++count;
    }
  });
  return count;
}

void ReadPath::fetch_units(std::span<const UnitRead> reads) const {
  for (std::size_t i = 0; i < reads.size();) {
    const std::size_t first = i++;
    while (i < reads.size() && reads[i].unit == reads[i - 1].unit + 1) ++i;
    state_.media.fetch(reads[first].unit, static_cast<std::uint32_t>(i - first));
  }
}

// One sensing serves all groups of a flash page, and the same page of several planes. The pages come row by row, and
// within a row die by die.
std::vector<PageRead> ReadPath::pages_of(std::span<const UnitRead> reads) {
  struct Read {
    std::uint64_t key;  // row, die, slot
    std::uint32_t wanted_bytes;
  };
  const std::uint32_t units_per_page = state_.geometry.units_per_page(),
                      per_program = state_.geometry.units_per_program();
  const std::uint32_t units_sensed = units_per_page * state_.geometry.planes;  // the planes' pages are adjacent
  std::vector<Read> sorted;
  sorted.reserve(reads.size());
  std::uint32_t slot = 0;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const auto [unit, wanted_bytes] = reads[i];
    if (i > 0 && unit == reads[i - 1].unit + 1 && ++slot < per_program) {  // the same program's next unit
      sorted.push_back({sorted.back().key + 1, wanted_bytes});
      continue;
    }
    const Place p = state_.bands.place(unit);
    const std::uint64_t row = std::uint64_t{p.band} * state_.geometry.rows_per_band() + p.row;
    slot = p.slot;
    sorted.push_back({(row * state_.geometry.dies() + p.die) * per_program + slot, wanted_bytes});
  }
  if (!std::ranges::is_sorted(sorted, {}, &Read::key)) std::ranges::sort(sorted, {}, &Read::key);
  std::vector<PageRead> pages;
  for (std::size_t i = 0; i < sorted.size();) {
    const std::uint64_t program = sorted[i].key / per_program;
    const auto first_slot = static_cast<std::uint32_t>(sorted[i].key % per_program);
    const auto row = static_cast<std::uint32_t>(program / state_.geometry.dies() % state_.geometry.rows_per_band());
    const auto band = static_cast<std::uint32_t>(program / state_.geometry.dies() / state_.geometry.rows_per_band());
    PageRead page{.die = static_cast<std::uint32_t>(program % state_.geometry.dies()), .planes = 0};
    page.erases = state_.bands.at(band).erases;
    page.page = row * state_.geometry.pages_per_program + first_slot / units_sensed;
    std::uint64_t last_page = UINT64_MAX;
    const std::uint64_t end = sorted[i].key - first_slot % units_sensed + units_sensed;  // of the units sensed together
    for (; i < sorted.size() && sorted[i].key < end; ++i) {
      const std::uint64_t flash_page = sorted[i].key / units_per_page;
      page.planes += flash_page != last_page;
      last_page = flash_page;
      page.bytes += abi::kPageBytes;
      page.wanted_bytes += sorted[i].wanted_bytes;
    }
    state_.counters.pages_sensed += page.planes;
    pages.push_back(page);
  }
  return pages;
}

Ns ReadPath::time_reads(std::span<const UnitRead> reads, Ns ready, Sink sink) {
  return state_.device.timing().modelled() ? state_.schedule.read(pages_of(reads), ready, sink) : ready;
}

}  // namespace kvdrive
