// SPDX-License-Identifier: Apache-2.0
// Reading groups: contents from the file, time from the flash model.
#include <algorithm>
#include <cstring>

#include "ftl/ftl.hpp"

namespace kvdrive {

Ftl::ReadResult Ftl::read(std::span<const GroupRead> reads, Ns ready, Sink sink) {
  std::vector<const GroupRead*> from_flash;
  media_.read(split_reads(reads, from_flash));
  (sink == Sink::kFirmware ? counters_.groups_reread : counters_.groups_read) += reads.size();
  ReadResult result{true, time_reads(from_flash, ready, sink)};
  for (const GroupRead& read : reads) {
    const bool flash = entries_[read.group].unit != kQueued;
    const bool failed = flash && faults_.strikes(FaultKind::kReadUncorrectable);
    if (!failed && crc32c({read.out, abi::kPageBytes}) == entries_[read.group].crc) continue;
    ++counters_.lost_groups;
    result.whole = false;
  }
  return result;
}

// Queued groups are copied at once, the others are returned as unit reads.
std::vector<UnitRead> Ftl::split_reads(std::span<const GroupRead> reads, std::vector<const GroupRead*>& from_flash) {
  std::vector<UnitRead> units;
  units.reserve(reads.size());
  from_flash.reserve(reads.size());
  for (const GroupRead& read : reads) {
    const Entry& entry = entries_[read.group];
    if (entry.unit != kQueued) {
      units.push_back({entry.unit, read.out});
      from_flash.push_back(&read);
      continue;
    }
    const Location at = queued_.at(read.group);
    std::memcpy(read.out, queues_[at.die].data.data() + std::size_t{at.slot} * abi::kPageBytes, abi::kPageBytes);
    ++counters_.queued_reads;
  }
  return units;
}

// One sensing for all groups of a flash page, and for the same page of several planes.
Ns Ftl::time_reads(std::vector<const GroupRead*>& reads, Ns ready, Sink sink) {
  std::ranges::sort(reads, {}, [this](const GroupRead* read) { return entries_[read->group].unit; });
  const std::uint32_t units_per_page = geometry_.units_per_page();
  const std::uint32_t units_sensed = units_per_page * geometry_.planes;  // the planes' pages lie side by side
  Ns done = ready;
  for (std::size_t i = 0; i < reads.size();) {
    const Unit first = entries_[reads[i]->group].unit;
    const Place place = place_of(geometry_, first);
    PageRead page{.die = place.die, .planes = 0};
    page.page = place.program * geometry_.pages_per_program + place.slot / units_sensed;
    Unit last_page = UINT32_MAX;
    for (; i < reads.size() && entries_[reads[i]->group].unit / units_sensed == first / units_sensed; ++i) {
      const Unit flash_page = entries_[reads[i]->group].unit / units_per_page;
      page.planes += flash_page != last_page;
      last_page = flash_page;
      page.bytes += abi::kPageBytes;
      page.wanted_bytes += reads[i]->wanted_bytes;
    }
    counters_.pages_sensed += page.planes;
    done = std::max(done, device_.read(page, ready, sink));
  }
  return done;
}

}  // namespace kvdrive
