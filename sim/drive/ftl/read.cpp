// SPDX-License-Identifier: Apache-2.0
// Reading groups: contents from the file, time from the flash model.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "ftl/ftl.hpp"
#include "ftl/group_stream.hpp"

namespace kvdrive {
const std::byte* Ftl::page(Unit unit) const {
  if (!waits(unit) || !media_.keeps_payload()) return media_.unit(waits(unit) ? 0 : unit);
  return data_.data() + slot_of(unit) * abi::kPageBytes;
}

bool Ftl::intact(Family family, std::uint32_t index, Unit unit, const std::byte* page) const {
  if (!media_.keeps_payload()) return true;
  const std::uint32_t crc = crc32c({page, abi::kPageBytes});
  if (waits(unit)) return queue_[slot_of(unit)].crc == crc;
  const Spare spare = media_.spare(unit);
  return spare.written == 1 && spare.family == family && spare.owner.index == index && spare.data_crc == crc;
}

const std::byte* Ftl::in_memory(Unit unit) const { return waits(unit) ? page(unit) : media_.staged_unit(unit); }

void Ftl::start_read(DirectReads& reads, Unit first, std::uint32_t count, std::byte* to,
                     DirectReads::Batch& batch) const {
  media_.expect_spares(first, count);
  reads.start(media_.file_offset(first), {to, std::size_t{count} * abi::kPageBytes}, batch);
}

bool Ftl::count_read(Unit unit, Sink sink) {
  ++(sink == Sink::kFirmware ? counters_.groups_reread : counters_.groups_read);
  counters_.queued_reads += waits(unit) ? 1 : 0;
  return struck(unit);
}

Ftl::ReadResult Ftl::read_directly(std::span<const GroupRead> reads, Ns ready, Sink sink) {
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
      const Unit unit = map_.unit(read.list, read.index);
      if (piece.whole && intact(map_.family(read.list), read.index, unit, read.out)) continue;
      ++counters_.lost_groups;
      result.whole = false;
    }
  }
  return result;
}

Ftl::ReadResult Ftl::read(std::span<const GroupRead> reads, Ns ready, Sink sink) {
  if (direct() != nullptr) return read_directly(reads, ready, sink);
  std::vector<UnitRead> from_flash;
  std::vector<Unit> units;
  units.reserve(reads.size());
  for (const GroupRead& read : reads) {
    units.push_back(map_.unit(read.list, read.index));
    if (waits(units.back())) {
      ++counters_.queued_reads;
    } else {
      from_flash.push_back({units.back(), read.wanted_bytes});
    }
  }
  (sink == Sink::kFirmware ? counters_.groups_reread : counters_.groups_read) += reads.size();
  ReadResult result{true, time_reads(from_flash, ready, sink)};
  fetch_units(from_flash);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    std::memcpy(reads[i].out, page(units[i]), abi::kPageBytes);
    const bool failed = struck(units[i]);
    if (!failed && intact(map_.family(reads[i].list), reads[i].index, units[i], reads[i].out)) continue;
    ++counters_.lost_groups;
    result.whole = false;
  }
  return result;
}

Ftl::ReadResult Ftl::view(ListId list, const std::vector<bool>& wanted, Ns ready, Sink sink,
                          std::vector<const std::byte*>& pages) {
  std::vector<UnitRead> from_flash;
  ReadResult result;
  const std::uint64_t queued = counters_.queued_reads;
  map_.extents(list).for_each(0, static_cast<std::uint32_t>(wanted.size()), [&](const Extent& run) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const Unit unit = run.unit + i;
      pages.push_back(wanted[run.index + i] ? page(unit) : nullptr);
      if (pages.back() == nullptr) continue;
      if (waits(unit)) {
        ++counters_.queued_reads;
      } else {
        from_flash.push_back({unit, abi::kPageBytes});
      }
      if (!struck(unit)) continue;
      ++counters_.lost_groups;
      result.whole = false;
    }
  });
  (sink == Sink::kFirmware ? counters_.groups_reread : counters_.groups_read) +=
      from_flash.size() + (counters_.queued_reads - queued);
  result.done = time_reads(from_flash, ready, sink);
  return result;
}

void Ftl::fetch(ListId list, const std::vector<bool>& wanted) const {
  map_.extents(list).for_each(0, static_cast<std::uint32_t>(wanted.size()), [&](const Extent& run) {
    if (waits(run.unit)) return;
    for (std::uint32_t i = 0; i < run.count;) {
      const std::uint32_t first = i;
      while (i < run.count && wanted[run.index + i]) ++i;
      media_.fetch(run.unit + first, i - first);
      while (i < run.count && !wanted[run.index + i]) ++i;
    }
  });
}

bool Ftl::fetched(ListId list, const std::vector<bool>& wanted) const {
  bool all = true;
  map_.extents(list).for_each(0, static_cast<std::uint32_t>(wanted.size()), [&](const Extent& run) {
    all = all && (waits(run.unit) || media_.fetched(run.unit, run.count));
  });
  return all;
}

std::uint32_t Ftl::damaged(ListId list, std::uint32_t first, std::span<const std::byte* const> pages) const {
  const Family family = map_.family(list);
  std::uint32_t count = 0;
  map_.extents(list).for_each(first, first + static_cast<std::uint32_t>(pages.size()), [&](const Extent& run) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const std::byte* const page = pages[run.index + i - first];
      if (page != nullptr && !intact(family, run.index + i, run.unit + i, page)) ++count;
    }
  });
  return count;
}

void Ftl::fetch_units(std::span<const UnitRead> reads) const {
  for (std::size_t i = 0; i < reads.size();) {
    const std::size_t first = i++;
    while (i < reads.size() && reads[i].unit == reads[i - 1].unit + 1) ++i;
    media_.fetch(reads[first].unit, static_cast<std::uint32_t>(i - first));
  }
}

// One sensing for all groups of a flash page, and for the same page of several planes. Rows in their order, in a row
// the dies in theirs.
Ns Ftl::time_reads(std::span<const UnitRead> reads, Ns ready, Sink sink) {
  if (!device_.timing().modelled()) return ready;
  struct Read {
    std::uint64_t key;  // row, die, slot
    std::uint32_t wanted_bytes;
  };
  const std::uint32_t units_per_page = geometry_.units_per_page(), per_program = geometry_.units_per_program();
  const std::uint32_t units_sensed = units_per_page * geometry_.planes;  // the planes' pages lie side by side
  std::vector<Read> sorted;
  sorted.reserve(reads.size());
  for (const UnitRead& read : reads) {
    const Place p = bands_.place(read.unit);
    const std::uint64_t row = std::uint64_t{p.band} * geometry_.rows_per_band() + p.row;
    sorted.push_back({(row * geometry_.dies() + p.die) * per_program + p.slot, read.wanted_bytes});
  }
  std::ranges::sort(sorted, {}, &Read::key);
  Ns done = ready;
  for (std::size_t i = 0; i < sorted.size();) {
    const std::uint64_t program = sorted[i].key / per_program;
    const auto slot = static_cast<std::uint32_t>(sorted[i].key % per_program);
    const auto row = static_cast<std::uint32_t>(program / geometry_.dies() % geometry_.rows_per_band());
    const auto band = static_cast<std::uint32_t>(program / geometry_.dies() / geometry_.rows_per_band());
    PageRead page{.die = static_cast<std::uint32_t>(program % geometry_.dies()), .planes = 0};
    page.erases = bands_.at(band).erases;
    page.page = row * geometry_.pages_per_program + slot / units_sensed;
    std::uint64_t last_page = UINT64_MAX;
    const std::uint64_t sensed = program * geometry_.pages_per_program + slot / units_sensed;
    for (; i < sorted.size(); ++i) {
      const std::uint64_t this_slot = sorted[i].key % per_program;
      if (sorted[i].key / per_program * geometry_.pages_per_program + this_slot / units_sensed != sensed) break;
      const std::uint64_t flash_page = sorted[i].key / units_per_page;
      page.planes += flash_page != last_page;
      last_page = flash_page;
      page.bytes += abi::kPageBytes;
      page.wanted_bytes += sorted[i].wanted_bytes;
    }
    counters_.pages_sensed += page.planes;
    done = std::max(done, device_.read(page, ready, sink));
  }
  return done;
}

}  // namespace kvdrive
