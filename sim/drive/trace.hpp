// SPDX-License-Identifier: Apache-2.0
// A timeline of device time in Chrome's trace format, which Perfetto can open. It has one track for each channel, die,
// bus, engine and submission queue. It keeps only the latest events; the user sets their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <mutex>
#include <string_view>
#include <vector>

#include "nand/timing.hpp"

namespace kvdrive {

enum class TraceTrack : std::uint8_t { kChannel, kDie, kPcie, kPeer, kMemory, kEngine, kQueue };
enum class TraceWork : std::uint8_t { kTransfer, kSense, kSenseWeights, kSenseAhead, kProgram, kErase, kJob, kCommand };

// The number of a queue's track. Track 0 holds the commands that came through no queue.
constexpr std::uint32_t queue_track(std::uint16_t controller, std::uint16_t queue) {
  return std::uint32_t{controller} << 16 | queue;
}

class Trace {
 public:
  // Drops all events and keeps up to `events` events from then on; 0 switches the trace off. Like `write`, not safe to
  // call while commands run.
  void keep(std::size_t events);
  bool on() const { return room_ > 0; }

  void add(TraceTrack track, std::uint32_t number, TraceWork work, Ns start, Ns end, std::uint64_t value = 0) {
    if (room_ == 0 || end <= start) return;
    const std::lock_guard lock(mutex_);
    const Event event{start, end - start, value, number, track, work};
    if (events_.size() < room_) {
      events_.push_back(event);
    } else {
      events_[added_ % room_] = event;
    }
    ++added_;
  }

  // Writes the events as JSON and returns their number. `events_in_all` of its otherData counts those that were
  // dropped, too. `name_of` returns a command's name by namespace and opcode, or
  // an empty name.
  using CommandName = std::string_view (*)(std::uint32_t nsid, std::uint8_t opcode);
  std::size_t write(std::ostream& out, CommandName name_of) const;

 private:
  struct Event {
    Ns start, length;
    std::uint64_t value;  // bytes, cycles of a job, or namespace << 8 | opcode of a command
    std::uint32_t number;
    TraceTrack track;
    TraceWork work;
  };

  std::mutex mutex_;  // engine and flash add events from two threads
  std::vector<Event> events_;
  std::size_t room_ = 0;
  std::size_t added_ = 0;
};

}  // namespace kvdrive
