// SPDX-License-Identifier: Apache-2.0
// The flash translation layer: groups of one page under numbers that stay, wherever the flash keeps them.
//
// A group waits in its die's queue (drive memory) until a whole program is full. Changes are durable after the next
// commit only: what a commit has not seen yet is never erased. Sessions may share a group; it is counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ftl/block_table.hpp"
#include "nand/device.hpp"
#include "storage/faults.hpp"
#include "storage/media.hpp"
#include "storage/records.hpp"

namespace kvdrive {

using GroupId = std::uint32_t;

// The flash takes no more groups.
struct DriveFull : std::runtime_error {
  DriveFull() : std::runtime_error("the drive is full") {}
};

struct GroupRead {
  GroupId group = 0;
  std::byte* out = nullptr;                      // kPageBytes
  std::uint32_t wanted_bytes = abi::kPageBytes;  // what the filter lets through
};

struct FtlCounters {
  std::uint64_t groups_written = 0;  // by the drive's user
  std::uint64_t groups_moved = 0;    // by collection
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
  // `commit` makes the present state durable (see `save`); collection calls it when it needs erased blocks.
  Ftl(const Superblock& superblock, Media& media, NandDevice& device, Faults& faults, std::function<void()> commit);

  // Stores kPageBytes with one reference. `stripe` chooses the die. Throws DriveFull, and what `commit` throws.
  GroupId put(const Owner& owner, std::uint32_t stripe, std::span<const std::byte> data);
  void retain(GroupId group) { ++entries_[group].references; }
  void release(GroupId group);

  struct ReadResult {
    bool whole = true;  // false: some contents are lost, `out` of those holds nothing of use
    Ns done = 0;
  };
  // Reads on their way. Nothing may change groups before `finish`.
  class Reading {
   public:
    // All contents are at their place, or the result says that some are lost. Throws what the transfers threw.
    ReadResult finish();

   private:
    friend class Ftl;
    Ftl* ftl_ = nullptr;
    std::vector<GroupRead> reads_;
    std::unique_ptr<std::uint8_t[]> intact_;  // per read: its contents have their checksum
    Ns done_ = 0;
    TransferThreads::Batch transfers_;  // last: waits for them before the rest goes
  };
  // `ready`: when the firmware starts the reads.
  Reading start_read(std::vector<GroupRead> reads, Ns ready, Sink sink);
  ReadResult read(std::span<const GroupRead> reads, Ns ready, Sink sink) {
    return start_read({reads.begin(), reads.end()}, ready, sink).finish();
  }

  // Groups that can still be stored.
  std::uint64_t available() const;
  std::uint64_t live() const { return live_; }
  std::uint64_t queued() const { return queued_.size(); }

  // Device time: operations from now on start at `now` or later.
  void set_time(Ns now) { now_ = now; }
  Ns now() const { return now_; }
  // End of the last program that was started.
  Ns programs_done() const { return programs_done_; }

  void save(RecordWriter& writer, bool everything);
  void committed();

  void load_map(RecordReader& reader);
  void load_buffered(RecordReader& reader);
  void load_blocks(RecordReader& reader) { blocks_.load(reader); }
  // After all records, when every owner has retained its groups: drops the others.
  void finish_loading();

  const FtlCounters& counters() const { return counters_; }
  BlockTable::Wear wear() const { return blocks_.wear(); }
  std::uint64_t metadata_bytes() const;

  // Compares group table, spares, contents and blocks; `report` gets a sentence per disagreement.
  void check(const std::function<void(const std::string&)>& report);
  // The owner that a group's page names. False when there is none to read.
  bool owner_of(GroupId group, Owner& owner);
  std::uint32_t references(GroupId group) const { return entries_.at(group).references; }
  std::size_t groups() const { return entries_.size(); }

 private:
  static constexpr Unit kQueued = UINT32_MAX;

  struct Entry {
    Unit unit = kQueued;
    std::uint32_t crc = 0;
    std::uint32_t references = 0;
  };
  struct Slot {
    GroupId group = 0;
    Owner owner;
    bool saved = false;  // a commit holds its contents
  };
  struct Queue {
    std::vector<Slot> slots;
    AlignedBuffer data;
  };
  struct Location {
    std::uint32_t die, slot;
  };

  std::uint32_t choose_die(std::uint32_t stripe);
  void push(std::uint32_t die, const Slot& slot, std::span<const std::byte> data);
  void drop_from_queue(GroupId group);
  void program(std::uint32_t die);
  std::optional<std::uint32_t> open_block(std::uint32_t die);
  bool open_next(std::uint32_t die);
  bool make_room(std::uint32_t die);
  bool collect(std::uint32_t die);
  void empty(std::uint32_t die, std::uint32_t block);
  void move_live_units(std::uint32_t die, std::uint32_t block);
  Ns time_reads(std::vector<const GroupRead*>& reads, Ns ready, Sink sink);

  const Geometry geometry_;
  const std::uint64_t capacity_;
  Media& media_;
  NandDevice& device_;
  Faults& faults_;
  std::function<void()> commit_;
  BlockTable blocks_;
  std::vector<Entry> entries_;
  std::vector<GroupId> unused_;
  std::vector<Queue> queues_;  // one per die
  std::unordered_map<GroupId, Location> queued_;
  std::unordered_set<GroupId> dirty_;  // mapped since the last commit
  std::uint64_t live_ = 0;
  Ns now_ = 0;
  Ns programs_done_ = 0;
  FtlCounters counters_;
};

}  // namespace kvdrive
