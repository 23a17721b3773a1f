// SPDX-License-Identifier: Apache-2.0
// The flash reads and programs of all commands that are under way in device time. They take turns on each die, by
// deadline and share (storage/transfer_schedule.hpp).
//
// `read` is for a command that is being executed: it returns when the reads end. `start` is for one that somebody waits
// for later, with `join`; until then its reads go beside those of other commands. Each step books the read that can
// begin first; of several that can begin at the same time, the one that the policy takes. A read begins so that its
// channel is free, or nearly so, when it is sensed. Reads for the host begin only while the link to the host has work
// for kMostBacklog at most, so that results of other commands do not wait behind all of them. Commands that meet no
// started reads take the time that they take alone. The same calls give the same times.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nand/device.hpp"
#include "storage/transfer_schedule.hpp"

namespace kvdrive {

class FlashSchedule {
 public:
  static constexpr std::size_t kMostBatches = 1024;  // started and not joined
  static constexpr Ns kMostBacklog = 200'000;

  FlashSchedule(NandDevice& device, std::uint32_t dies) : device_(device), dies_(dies) {}

  // Pages of a list's groups [first, end).
  struct Range {
    std::uint64_t family = 0;
    std::uint32_t first = 0, end = 0;
  };

  // Lets the pages be read to the host from `ready` on: kWeights or kAhead.
  void start(const Range& range, std::span<const PageRead> pages, Ns ready, TransferKind kind);
  // Reads pages for a command that waits for them. Returns when the last one is there.
  Ns read(std::span<const PageRead> pages, Ns ready, Sink sink);
  // Programs a page after the started reads of its die whose turn comes before. Returns when the program ends.
  Ns program(std::uint32_t die, std::uint32_t page, std::uint32_t bytes, Ns ready);
  // Begins the started reads that can begin before `now`. Must be called before the device advances to `now`.
  void catch_up(Ns now);
  // Returns when the pages that hold this group are there, and `now` if no started read holds it. Somebody waits for
  // them from now on: they are of kind kWeights.
  Ns join(std::uint64_t family, std::uint32_t group, Ns now);

  std::uint64_t pages_started() const { return pages_started_; }

 private:
  struct Batch {
    Range range;
    Ns ready = 0, done = 0;
    Sink sink = Sink::kHost;
    TransferKind kind = TransferKind::kAttention;
    std::vector<std::uint64_t> waiting;  // numbers of pages, some of which may have begun
    std::size_t left = 0;                // pages that have not begun
  };
  using Batches = std::list<Batch>;
  struct Page {
    Batch* batch;
    PageRead read;
    TransferKind kind;
    Ns deadline;
  };
  using Turn = std::pair<Ns, std::uint64_t>;  // deadline, number of the page
  // The pages that wait for a die, by kind.
  using Die = std::array<std::set<Turn>, kTransferKinds>;

  void add(Batch& batch, std::span<const PageRead> pages, TraceWork work);
  void enqueue(std::uint64_t number, const Page& page);
  void dequeue(std::uint64_t number, const Page& page);
  void begin(std::uint64_t number, Ns ready);
  bool step(Ns before);
  Ns earliest(const Page& page) const;
  Ns finish(Batches::iterator batch, Ns now);

  NandDevice& device_;
  std::vector<Die> dies_;
  TransferShares shares_;
  std::array<std::uint32_t, kTransferKinds> waiting_{};  // pages
  std::unordered_map<std::uint64_t, Page> pages_;
  Batches started_;  // the oldest first
  std::uint64_t last_ = 0, pages_started_ = 0;
};

}  // namespace kvdrive
