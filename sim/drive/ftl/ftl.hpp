// SPDX-License-Identifier: Apache-2.0
// The flash translation layer: lists of groups of one page, wherever the flash keeps them.
//
// Groups wait in drive memory until a whole row of a band is full, in the order in which they came: a list that is
// appended in one go lies in consecutive units. Changes are durable after the next commit only: what a commit has not
// seen yet is never erased. Lists may share groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <vector>

#include "ftl/band_table.hpp"
#include "ftl/group_map.hpp"
#include "nand/device.hpp"
#include "storage/direct_reads.hpp"
#include "storage/faults.hpp"
#include "storage/media.hpp"
#include "storage/records.hpp"

namespace kvdrive {

// The flash takes no more groups, or the drive's memory no more of their places.
struct DriveFull : std::runtime_error {
  DriveFull() : std::runtime_error("the drive is full") {}
};

struct GroupRead {
  ListId list = 0;
  std::uint32_t index = 0;
  std::byte* out = nullptr;                      // kPageBytes
  std::uint32_t wanted_bytes = abi::kPageBytes;  // what the filter lets through
};

struct FtlCounters {
  std::uint64_t groups_written = 0;   // by the drive's user
  std::uint64_t groups_moved = 0;     // by collection
  std::uint64_t groups_levelled = 0;  // of these, to even out the wear
  std::uint64_t units_programmed = 0;
  std::uint64_t groups_read = 0;    // for the engine
  std::uint64_t groups_reread = 0;  // by the firmware itself
  std::uint64_t pages_sensed = 0;   // flash pages, some with several groups
  std::uint64_t queued_reads = 0;   // groups that still waited in drive memory
  std::uint64_t program_failures = 0;
  std::uint64_t erase_failures = 0;
  std::uint64_t lost_groups = 0;  // reads that found damaged contents
};

class Ftl {
 public:
  // `commit` makes the present state durable (see `save`); collection calls it when it needs erased bands.
  Ftl(const Superblock& superblock, Media& media, NandDevice& device, Faults& faults, std::function<void()> commit);

  ListId create_list() { return map_.create(); }
  // A new list with the first `count` groups of another one, shared until one of the two changes.
  ListId fork_list(ListId list, std::uint32_t count) { return map_.fork(list, count); }
  // Forgets the groups from `from` on.
  void cut(ListId list, std::uint32_t from);
  void drop_list(ListId list);
  // Forgets one group that is there.
  void remove(ListId list, std::uint32_t index);

  // Stores a page as group `owner.index` of the list, in the place of one that is there: `first`, then `rest`, then
  // zeros. Throws DriveFull, and what `commit` throws; the list holds the group or not then.
  void put(ListId list, const Owner& owner, std::span<const std::byte> first, std::span<const std::byte> rest);

  struct ReadResult {
    bool whole = true;  // false: some contents are lost, `out` of those holds nothing of use
    Ns done = 0;
  };
  // `ready`: when the firmware starts the reads.
  ReadResult read(std::span<const GroupRead> reads, Ns ready, Sink sink);

  // The first `wanted.size()` groups of a list where they are, without a copy: adds their addresses to `pages`, valid
  // until the next change, null for those that are not wanted. Then `fetch` makes sure that they can be read, and
  // `damaged` says whether they may be used; both may be called from another thread. The result is not whole when a
  // fault was injected.
  ReadResult view(ListId list, const std::vector<bool>& wanted, Ns ready, Sink sink,
                  std::vector<const std::byte*>& pages);
  void fetch(ListId list, const std::vector<bool>& wanted) const;
  // Whether that was a moment ago. Not beside `fetch`.
  bool fetched(ListId list, const std::vector<bool>& wanted) const;
  // Of the pages of groups `first` and on: how many do not hold what was written. Null ones do not count.
  std::uint32_t damaged(ListId list, std::uint32_t first, std::span<const std::byte* const> pages) const;
  void count_lost(std::uint32_t groups) { counters_.lost_groups += groups; }

  // Precondition: nothing is stored. Erases every block that held something; durable afterwards.
  void erase_all();

  // What was written for lists of these families (in ascending order), or for `session`, and is in no list any more:
  // the bands that hold something of it are to be erased. From the next commit on that is durable.
  void condemn(std::span<const Family> families, std::uint32_t session);
  // Moves what is alive away from these bands and erases them.
  void erase_condemned();
  // Nothing of them is left, elsewhere neither.
  void pardon();
  // A volume that was closed meanwhile has to go on with it.
  bool condemned() const { return condemning_; }

  // Reads go around the page cache when more than `cached` groups are live (GroupStream). Without this call none do.
  void read_around_cache(DirectReads& reads, std::uint64_t cached) {
    direct_ = &reads;
    cached_ = cached;
  }
  DirectReads* direct() const { return live_ > cached_ ? direct_ : nullptr; }

  // What a GroupStream asks. A group's unit; its page, if it is in drive memory.
  Unit unit(ListId list, std::uint32_t index) const { return map_.unit(list, index); }
  const std::byte* in_memory(Unit unit) const;
  void start_read(DirectReads& reads, Unit first, std::uint32_t count, std::byte* to, DirectReads::Batch& batch) const;
  // True when a fault was injected.
  bool count_read(Unit unit, Sink sink);

  // Groups that can still be stored.
  std::uint64_t available() const;
  std::uint64_t live() const { return live_; }
  std::uint64_t queued() const { return queue_.size(); }
  bool keeps_payload() const { return media_.keeps_payload(); }

  // Device time: operations from now on start at `now` or later.
  void set_time(Ns now) { now_ = now; }
  Ns now() const { return now_; }
  // End of the last program that was started.
  Ns programs_done() const { return programs_done_; }
  Ns erases_done() const { return erases_done_; }

  void save(RecordWriter& writer, bool everything);
  void committed();

  void load_list(RecordReader& reader) { map_.load(reader); }
  void load_buffered(RecordReader& reader);
  void load_bands(RecordReader& reader) { bands_.load(reader); }
  void load_condemned(RecordReader& reader);
  // After all records owners claim their lists; then the others are dropped.
  void claim(ListId list) { map_.claim(list); }
  void finish_loading();

  const FtlCounters& counters() const { return counters_; }
  BandTable::Wear wear() const { return bands_.wear(); }
  // Drive memory of map, bands and what the owners of lists `charge` for themselves; without the row that fills. When
  // the budget is used up `put` throws DriveFull.
  std::uint64_t metadata_bytes() const { return map_.memory_bytes() + bands_.memory_bytes() + owners_bytes_; }
  std::uint64_t metadata_left() const {
    const std::uint64_t used = metadata_bytes();
    return metadata_budget_ > used ? metadata_budget_ - used : 0;
  }
  // Of a list's runs, or of two.
  std::uint64_t run_bytes(ListId list, ListId other) const;
  void set_metadata_budget(std::uint64_t bytes) { metadata_budget_ = bytes; }
  void charge(std::int64_t bytes) { owners_bytes_ += static_cast<std::uint64_t>(bytes); }

  // Compares map, spares, contents and bands; `report` gets a sentence per disagreement.
  void check(const std::function<void(const std::string&)>& report);
  // The owner that a group's page names. False when there is none to read.
  bool owner_of(ListId list, std::uint32_t index, Owner& owner) const;
  // How many of the first `count` groups there are.
  std::uint32_t groups(ListId list, std::uint32_t count) const;
  Family family(ListId list) const { return map_.family(list); }
  bool holds(ListId list, std::uint32_t index) const { return map_.exists(list) && map_.at(list, index).has_value(); }

 private:
  struct Slot {
    Family family = 0;
    Owner owner;
    std::uint32_t crc = 0;
    Ns ready = 0;        // in device time
    bool saved = false;  // a commit holds its contents
    bool live = true;
  };
  struct Loaded {
    Slot slot;
    std::vector<std::byte> data;
  };

  struct Moving {
    Family family;
    std::uint32_t index;
    Unit unit;
  };
  // A band that is being emptied.
  struct Cleaning {
    bool under_way = false;
    std::uint32_t band = 0, erases = 0;
    bool levelling = false;
    std::vector<Moving> left{};  // from `next` on
    std::size_t next = 0;
  };

  // The number of the group in slot `i` of the queue, as long as it waits.
  Unit number_of(std::size_t slot) const {
    return kMostUnits | ((first_number_ + static_cast<Unit>(slot)) & kNumberMask);
  }
  std::size_t slot_of(Unit number) const { return (number - first_number_) & kNumberMask; }
  static bool waits(Unit unit) { return unit >= kMostUnits; }
  static constexpr Unit kNumberMask = ~kMostUnits;

  std::size_t row_units() const;
  std::byte* push(const Slot& slot);
  void free_units(Unit unit, std::uint32_t count);
  void program_rows();
  bool program_row(std::uint32_t band);
  std::optional<std::uint32_t> open_band();
  bool open_next();
  bool erase(std::uint32_t band);
  bool holds_remains(std::uint32_t band, std::span<const Family> families, std::uint32_t session) const;
  void discard_beside(std::uint32_t band);
  void release(std::uint32_t band);
  bool make_room();
  bool collect();
  void collect_ahead();
  bool is_cleaning();
  void start_cleaning(std::uint32_t band, bool levelling);
  void find_lost(Cleaning& cleaning) const;
  void clean(std::uint64_t most);
  void move_units(std::span<const Moving> groups);
  void move_unit(const Moving& group);
  const std::byte* page(Unit unit) const;
  bool intact(Family family, std::uint32_t index, Unit unit, const std::byte* page) const;
  bool struck(Unit unit) { return !waits(unit) && faults_.strikes(FaultKind::kReadUncorrectable); }

  struct UnitRead {
    Unit unit;
    std::uint32_t wanted_bytes;
  };
  void fetch_units(std::span<const UnitRead> reads) const;
  ReadResult read_directly(std::span<const GroupRead> reads, Ns ready, Sink sink);
  Ns time_reads(std::span<const UnitRead> reads, Ns ready, Sink sink);

  const Geometry geometry_;
  const std::uint64_t capacity_;
  Media& media_;
  NandDevice& device_;
  Faults& faults_;
  std::function<void()> commit_;
  BandTable bands_;
  GroupMap map_;
  std::vector<Slot> queue_;
  AlignedBuffer data_;  // of the queue
  Unit first_number_ = 0;
  std::map<Unit, Loaded> loaded_;  // while loading
  std::uint64_t live_ = 0;
  DirectReads* direct_ = nullptr;
  std::uint64_t cached_ = 0;
  std::uint64_t owners_bytes_ = 0;
  std::uint64_t metadata_budget_ = UINT64_MAX;
  Cleaning cleaning_;
  Ns now_ = 0;
  bool levelling_due_ = false;  // the open band is for groups that do not change
  Ns background_ = 0;           // when the reads for cleaning end
  Ns programs_done_ = 0;
  Ns erases_done_ = 0;
  std::set<std::uint32_t> condemned_;
  bool condemning_ = false;         // until `pardon`
  bool condemned_changed_ = false;  // since the last commit
  FtlCounters counters_;
};

}  // namespace kvdrive
