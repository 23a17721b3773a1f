// SPDX-License-Identifier: Apache-2.0
// The flash translation layer maps logical groups (a list and an index, one page each) to physical units of the flash.
//
// Groups queue in drive memory, in order of arrival, until they fill a whole row of the open band. So a list that is
// appended at once lies in consecutive units. Changes are durable only after the next commit. Units that the last
// commit references are not erased before the next one. Lists may share groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ftl/eraser.hpp"
#include "ftl/ftl_state.hpp"
#include "ftl/garbage_collector.hpp"
#include "ftl/read_path.hpp"
#include "ftl/recovery.hpp"
#include "ftl/salvage.hpp"
#include "ftl/write_path.hpp"

namespace kvdrive {

// Thrown when the flash accepts no more groups, or the drive's memory no more map entries.
struct DriveFull : std::runtime_error {
  DriveFull() : std::runtime_error("the drive is full") {}
};

class Ftl {
 public:
  // `commit` makes the present state durable (see `save`). Garbage collection calls it when it needs erased bands.
  Ftl(const Superblock& superblock, Media& media, NandDevice& device, Faults& faults, std::function<void()> commit)
      : state_(superblock, media, device, faults, std::move(commit)), capacity_(superblock.capacity_units) {}
  Ftl(const Ftl&) = delete;
  Ftl& operator=(const Ftl&) = delete;

  // Commits first if the journal has reserved no more families. Throws any exception of `commit`.
  ListId create_list();
  // Makes a new list with the first `count` groups of another one. The lists share each group until one of them changes
  // it.
  ListId fork_list(ListId list, std::uint32_t count) { return state_.map.fork(list, count); }
  // Removes the groups from `from` on.
  void cut(ListId list, std::uint32_t from);
  void drop_list(ListId list);
  // Removes one group. Precondition: the list holds it.
  void remove(ListId list, std::uint32_t index);
  // Removes the `count` groups behind the first one; later groups move to lower positions. Precondition: the list holds
  // them.
  void remove_behind_first(ListId list, std::uint32_t count);

  // Stores a page at position `owner.index` of the list and replaces an earlier group there. The page consists of
  // `first`, then `rest`, then zeros. Throws DriveFull, and any exception of `commit`; the list may or may not hold the
  // group then.
  void put(ListId list, Owner owner, std::span<const std::byte> first, std::span<const std::byte> rest);

  // See ReadPath.
  ReadResult read(std::span<const GroupRead> reads, Ns ready, Sink sink) { return reads_.read(reads, ready, sink); }
  ReadResult start(std::span<const GroupRead> reads, Ns ready, TransferKind kind) {
    return reads_.start(reads, ready, kind);
  }
  Ns join(ListId list, std::uint32_t index, Ns ready) { return reads_.join(list, index, ready); }
  std::uint64_t pages_started() const { return state_.schedule.pages_started(); }
  // Started reads go on in device time up to `now`.
  void catch_up(Ns now) { state_.schedule.catch_up(now); }
  ReadResult view(ListId list, const std::vector<bool>& wanted, Ns ready, Sink sink,
                  std::vector<const std::byte*>& pages) {
    return reads_.view(list, wanted, ready, sink, pages);
  }
  void fetch(ListId list, const std::vector<bool>& wanted) const { reads_.fetch(list, wanted); }
  bool fetched(ListId list, const std::vector<bool>& wanted) const { return reads_.fetched(list, wanted); }
  std::uint32_t damaged(ListId list, std::uint32_t first, std::span<const std::byte* const> pages) const {
    return reads_.damaged(list, first, pages);
  }
  void read_around_cache(DirectReads& reads, std::uint64_t cached) { reads_.read_around_cache(reads, cached); }
  DirectReads* direct() const { return reads_.direct(); }
  ReadPath& read_path() { return reads_; }
  // Sets how much drive memory keeps pages of K and V that policy groups has read, and of its index.
  void keep_pages(std::uint64_t hot_bytes, std::uint64_t index_bytes) {
    state_.hot.set_budget(hot_bytes, true);
    state_.index.set_budget(index_bytes, false);
  }
  const KeptPages& hot() const { return state_.hot; }
  const KeptPages& kept_index() const { return state_.index; }
  void count_lost(std::uint32_t groups) { state_.counters.lost_groups += groups; }

  // See Eraser.
  void mark_for_erase(std::span<const Family> families, std::uint32_t session) { eraser_.mark(families, session); }
  void erase_marked() { eraser_.erase_marked(); }
  void unmark() { eraser_.unmark(); }
  // True from `mark_for_erase` to `unmark`, even if the volume was closed in between.
  bool marked_for_erase() const { return state_.marks.active(); }
  void erase_all() { eraser_.erase_all(); }

  // The number of groups that can still be stored.
  std::uint64_t available() const;
  std::uint64_t live() const { return state_.live; }
  std::uint64_t queued() const { return state_.queue.size(); }
  bool keeps_payload() const { return state_.media.keeps_payload(); }

  // Sets the device time. Later operations start at `now` or later.
  void set_time(Ns now) { state_.now = now; }
  Ns now() const { return state_.now; }
  Ns programs_done() const { return writes_.programs_done(); }
  Ns erases_done() const { return writes_.erases_done(); }

  // See Recovery. After all records are loaded, owners `claim` their lists; lists without a claim are dropped.
  void save(RecordWriter& writer, bool everything) const { recovery_.save(writer, everything); }
  void committed() { recovery_.committed(); }
  void load_list(RecordReader& reader) { state_.map.load(reader); }
  void load_buffered(RecordReader& reader) { state_.queue.load(reader); }
  void load_bands(RecordReader& reader) { state_.bands.load(reader); }
  void load_erase_marks(RecordReader& reader) { state_.marks.load(reader, state_.geometry.blocks_per_die); }
  void load_counters(RecordReader& reader) { state_.order.load(reader, state_.map); }
  void claim(ListId list) { state_.map.claim(list); }
  void finish_loading() { recovery_.finish_loading(); }
  void check(const std::function<void(const std::string&)>& report) const { recovery_.check(report); }
  Salvage& salvage() { return salvage_; }

  const FtlCounters& counters() const { return state_.counters; }
  BandTable::Wear wear() const { return state_.bands.wear(); }
  // Drive memory for the map, the bands, and the bytes that owners of lists `charge`. The write queue does not count.
  // When the budget is used up, `put` throws DriveFull.
  std::uint64_t metadata_bytes() const {
    return state_.map.memory_bytes() + state_.bands.memory_bytes() + owners_bytes_;
  }
  std::uint64_t metadata_left() const {
    const std::uint64_t used = metadata_bytes();
    return metadata_budget_ > used ? metadata_budget_ - used : 0;
  }
  void set_metadata_budget(std::uint64_t bytes) { metadata_budget_ = bytes; }
  void charge(std::int64_t bytes) { owners_bytes_ += static_cast<std::uint64_t>(bytes); }
  // Drive memory for the runs of lists. A list that does not exist counts as empty.
  std::uint64_t run_bytes(std::span<const ListId> lists) const;

  // Reads the owner that the spare of the group's page names, which counts indexes (see GroupMap). Returns false if
  // there is no valid spare.
  bool owner_of(ListId list, std::uint32_t index, Owner& owner) const;
  // The number of groups that exist among the first `count`.
  std::uint32_t groups(ListId list, std::uint32_t count) const;
  Family family(ListId list) const { return state_.map.family(list); }
  std::uint32_t index(ListId list, std::uint32_t position) const { return state_.map.index(list, position); }
  std::uint8_t removals(ListId list) const { return static_cast<std::uint8_t>(state_.map.removals(list)); }
  bool holds(ListId list, std::uint32_t index) const {
    return state_.map.exists(list) && state_.map.at(list, index).has_value();
  }

 private:
  FtlState state_;
  WritePath writes_{state_};
  ReadPath reads_{state_};
  GarbageCollector collector_{state_, writes_, reads_};
  Eraser eraser_{state_, writes_, collector_};
  Recovery recovery_{state_};
  Salvage salvage_{state_, recovery_};
  const std::uint64_t capacity_;  // in units
  std::uint64_t owners_bytes_ = 0;
  std::uint64_t metadata_budget_ = UINT64_MAX;
};

}  // namespace kvdrive
