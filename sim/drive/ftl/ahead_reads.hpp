// SPDX-License-Identifier: Apache-2.0
// Reads for the next layer in device time: they use dies that are idle, and otherwise take turns with the reads of
// commands (storage/transfer_schedule.hpp).
//
// Nobody waits for such a read until `join`. Without one, commands take the time that they take alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "nand/device.hpp"
#include "storage/transfer_schedule.hpp"

namespace kvdrive {

class AheadReads {
 public:
  static constexpr std::size_t kMostBatches = 1024;  // that nobody has joined

  explicit AheadReads(NandDevice& device) : device_(device) {}

  // Pages of a list's groups [first, end).
  struct Range {
    std::uint64_t family = 0;
    std::uint32_t first = 0, end = 0;
  };

  // Lets the pages be read from `ready` on.
  void add(const Range& range, std::span<const PageRead> pages, Ns ready, Sink sink);
  // Reads pages for a command that waits for them, in turns with those of `add`. Returns when the last one is there.
  Ns read(std::span<const PageRead> pages, Ns ready, Sink sink);
  // Starts what dies without other work could have started before `now`. Must be called before the device advances.
  void use_idle_dies(Ns now);
  // Returns when the pages that hold this group are there, and `now` if nothing reads them ahead. They wait for no
  // others any more.
  Ns join(std::uint64_t family, std::uint32_t group, Ns now);

  std::uint64_t pages() const { return pages_; }  // that were read ahead

 private:
  struct Batch {
    Range range;
    Ns ready = 0, done = 0;
    Sink sink = Sink::kHost;
    std::uint32_t waiting = 0;  // pages
  };
  using Batches = std::list<Batch>;
  struct Waiting {
    Batches::iterator batch;
    PageRead page;
    TransferSchedule::Waiting turn;
  };
  using WaitingPages = std::map<std::uint64_t, Waiting>;

  void start(WaitingPages::iterator waiting, Ns ready);
  Ns finish(Batches::iterator batch, Ns now);

  NandDevice& device_;
  TransferSchedule schedule_;
  Batches batches_;  // the oldest first
  WaitingPages waiting_;
  std::uint64_t last_ = 0, pages_ = 0;
};

}  // namespace kvdrive
