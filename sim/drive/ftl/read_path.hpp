// SPDX-License-Identifier: Apache-2.0
// The read path. Contents come from the backing file or the write queue, times from the flash model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ftl/flash_schedule.hpp"
#include "ftl/ftl_state.hpp"
#include "storage/direct_reads.hpp"

namespace kvdrive {

struct GroupRead {
  ListId list = 0;
  std::uint32_t index = 0;
  std::byte* out = nullptr;                      // kPageBytes
  std::uint32_t wanted_bytes = abi::kPageBytes;  // bytes that the page filter lets through
};

struct ReadResult {
  bool whole = true;  // false: some groups are lost; their `out` has undefined contents
  Ns done = 0;
};

struct UnitRead {
  Unit unit;
  std::uint32_t wanted_bytes;
};

class ReadPath {
 public:
  explicit ReadPath(FtlState& state) : state_(state) {}

  // Copies groups. `ready` is the device time at which the firmware starts the reads.
  ReadResult read(std::span<const GroupRead> reads, Ns ready, Sink sink);
  // Like `read` of consecutive groups of a list for the host, but in device time nobody waits for the flash until
  // `join`: the result is done at `ready`. `kind`: kWeights or kAhead.
  ReadResult start(std::span<const GroupRead> reads, Ns ready, TransferKind kind);
  // Returns the device time at which the latest `start` that holds this group is done; `ready` if none does.
  Ns join(ListId list, std::uint32_t index, Ns ready) {
    return state_.schedule.join(state_.map.family(list), index, ready);
  }

  // Gives access to the first `wanted.size()` groups of a list without a copy: appends their addresses to `pages`, null
  // for groups that are not wanted. The addresses are valid until the next change. Then `fetch` makes sure that they
  // can be read, and `damaged` tells which may be used; both may run in another thread. The result is not whole if a
  // fault was injected.
  ReadResult view(ListId list, const std::vector<bool>& wanted, Ns ready, Sink sink,
                  std::vector<const std::byte*>& pages);
  void fetch(ListId list, const std::vector<bool>& wanted) const;
  // True if the groups were fetched recently. Not safe to call concurrently with `fetch`.
  bool fetched(ListId list, const std::vector<bool>& wanted) const;
  // The number of pages whose contents do not match their checksums. `pages` holds those of groups `first` and on; null
  // entries are skipped.
  std::uint32_t damaged(ListId list, std::uint32_t first, std::span<const std::byte* const> pages) const;

  // Makes reads go around the page cache (GroupStream) when more than `cached` groups are live. Without this call all
  // reads use the page cache.
  void read_around_cache(DirectReads& reads, std::uint64_t cached) {
    direct_ = &reads;
    cached_ = cached;
  }
  DirectReads* direct() const { return state_.live > cached_ ? direct_ : nullptr; }

  // For GroupStream: the unit of a group, and its page if the page is in drive memory (null otherwise).
  Unit unit(ListId list, std::uint32_t index) const { return state_.map.unit(list, index); }
  const std::byte* in_memory(Unit unit) const;
  // While it stays the same, what was read of a group from the disk is what the group holds.
  std::uint64_t changes() const { return state_.map.changes(); }
  void start_read(DirectReads& reads, Unit first, std::uint32_t count, std::byte* to, DirectReads::Batch& batch) const;
  // The same for consecutive units into several places. Precondition: `parts` have `count` pages.
  void start_read(DirectReads& reads, Unit first, std::uint32_t count, std::span<const DirectReads::Part> parts) const;
  // Counts a read. Returns true if a fault was injected into it.
  bool count_read(Unit unit, Sink sink);

  // The pages of a kind that attention keeps in drive memory.
  KeptPages& kept(bool index) { return index ? state_.index : state_.hot; }

  // For garbage collection: brings units in from the disk. Returns the device time at which their reads end.
  void fetch_units(std::span<const UnitRead> reads) const;
  Ns time_reads(std::span<const UnitRead> reads, Ns ready, Sink sink);

 private:
  const std::byte* page(Unit unit) const;
  bool intact(Family family, std::uint32_t index, Unit unit, const std::byte* page) const;
  bool strikes(Unit unit) { return !WriteQueue::holds(unit) && state_.faults.strikes(FaultKind::kReadUncorrectable); }
  ReadResult read_directly(std::span<const GroupRead> reads, Ns ready, Sink sink);
  // The flash pages to sense for these units.
  std::vector<PageRead> pages_of(std::span<const UnitRead> reads);
  template <typename Time>
  ReadResult copy(std::span<const GroupRead> reads, Sink sink, Time time);
  std::uint64_t& reads_for(Sink sink) {
    return sink == Sink::kFirmware ? state_.counters.groups_reread : state_.counters.groups_read;
  }

  FtlState& state_;
  DirectReads* direct_ = nullptr;
  std::uint64_t cached_ = 0;
};

}  // namespace kvdrive
