// SPDX-License-Identifier: Apache-2.0
// Reading groups: contents from the file, time from the flash model.
#include <algorithm>
#include <cstring>

#include "ftl/ftl.hpp"

namespace kvdrive {

Ftl::Reading Ftl::start_read(std::vector<GroupRead> reads, Ns ready, Sink sink) {
  Reading reading;
  reading.ftl_ = this;
  reading.intact_ = std::make_unique<std::uint8_t[]>(reads.size());
  reading.reads_ = std::move(reads);
  std::vector<UnitRead> units;
  std::vector<const GroupRead*> from_flash;
  units.reserve(reading.reads_.size());
  from_flash.reserve(reading.reads_.size());
  for (const GroupRead& read : reading.reads_) {
    const Entry& entry = entries_[read.group];
    if (entry.unit != kQueued) {
      units.push_back({entry.unit, read.out});
      from_flash.push_back(&read);
      continue;
    }
    const Location at = queued_.at(read.group);
    std::memcpy(read.out, queues_[at.die].data.data() + std::size_t{at.slot} * abi::kPageBytes, abi::kPageBytes);
    reading.intact_[&read - reading.reads_.data()] = crc32c({read.out, abi::kPageBytes}) == entry.crc;
    ++counters_.queued_reads;
  }
  const auto arrived = [this, from_flash, all = reading.reads_.data(), intact = reading.intact_.get()](std::size_t i) {
    const GroupRead& read = *from_flash[i];
    intact[&read - all] = crc32c({read.out, abi::kPageBytes}) == entries_[read.group].crc;
  };
  reading.transfers_ = media_.start_read(units, arrived);
  (sink == Sink::kFirmware ? counters_.groups_reread : counters_.groups_read) += reading.reads_.size();
  reading.done_ = time_reads(from_flash, ready, sink);
  return reading;
}

Ftl::ReadResult Ftl::Reading::finish() {
  transfers_.wait();
  ReadResult result{true, done_};
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    const bool flash = ftl_->entries_[reads_[i].group].unit != kQueued;
    const bool failed = flash && ftl_->faults_.strikes(FaultKind::kReadUncorrectable);
    if (!failed && intact_[i]) continue;
    ++ftl_->counters_.lost_groups;
    result.whole = false;
  }
  return result;
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
