// SPDX-License-Identifier: Apache-2.0
// The read path: contents come from the backing file or the write queue, time from the flash model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ftl/ftl_state.hpp"
#include "storage/direct_reads.hpp"

namespace kvdrive {

struct GroupRead {
  ListId list = 0;
  std::uint32_t index = 0;
  std::byte* out = nullptr;                      // kPageBytes
  std::uint32_t wanted_bytes = abi::kPageBytes;  // what the filter lets through
};

struct ReadResult {
  bool whole = true;  // false: contents of some groups are lost; their `out` holds nothing of use
  Ns done = 0;
};

struct UnitRead {
  Unit unit;
  std::uint32_t wanted_bytes;
};

class ReadPath {
 public:
  explicit ReadPath(FtlState& state) : state_(state) {}

  // Copies groups. `ready`: device time at which the firmware starts the reads.
  ReadResult read(std::span<const GroupRead> reads, Ns ready, Sink sink);

  // The first `wanted.size()` groups of a list, where they are, without a copy: appends their addresses to `pages`,
  // null for those that are not wanted. They are valid until the next change. `fetch` then makes sure that they can be
  // read, and `damaged` tells which may be used; both may run in another thread. The result is not whole when a fault
  // was injected.
  ReadResult view(ListId list, const std::vector<bool>& wanted, Ns ready, Sink sink,
                  std::vector<const std::byte*>& pages);
  void fetch(ListId list, const std::vector<bool>& wanted) const;
  // True if the groups were fetched recently. Not safe to call concurrently with `fetch`.
  bool fetched(ListId list, const std::vector<bool>& wanted) const;
  // The number of pages that do not hold what was written. `pages` are those of groups `first` and on; null ones do not
  // count.
  std::uint32_t damaged(ListId list, std::uint32_t first, std::span<const std::byte* const> pages) const;

  // Reads go around the page cache when more than `cached` groups are live (GroupStream). Without this call none do.
  void read_around_cache(DirectReads& reads, std::uint64_t cached) {
    direct_ = &reads;
    cached_ = cached;
  }
  DirectReads* direct() const { return state_.live > cached_ ? direct_ : nullptr; }

  // For GroupStream. The unit of a group; its page if that is in drive memory, otherwise null.
  Unit unit(ListId list, std::uint32_t index) const { return state_.map.unit(list, index); }
  const std::byte* in_memory(Unit unit) const;
  void start_read(DirectReads& reads, Unit first, std::uint32_t count, std::byte* to, DirectReads::Batch& batch) const;
  // Counts a read. Returns true when a fault was injected into it.
  bool count_read(Unit unit, Sink sink);

  // For garbage collection. Brings units in from the disk; returns when their reads end in device time.
  void fetch_units(std::span<const UnitRead> reads) const;
  Ns time_reads(std::span<const UnitRead> reads, Ns ready, Sink sink);

 private:
  const std::byte* page(Unit unit) const;
  bool intact(Family family, std::uint32_t index, Unit unit, const std::byte* page) const;
  bool strikes(Unit unit) { return !WriteQueue::holds(unit) && state_.faults.strikes(FaultKind::kReadUncorrectable); }
  ReadResult read_directly(std::span<const GroupRead> reads, Ns ready, Sink sink);
  std::uint64_t& reads_for(Sink sink) {
    return sink == Sink::kFirmware ? state_.counters.groups_reread : state_.counters.groups_read;
  }

  FtlState& state_;
  DirectReads* direct_ = nullptr;
  std::uint64_t cached_ = 0;
};

}  // namespace kvdrive
