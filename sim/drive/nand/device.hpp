// SPDX-License-Identifier: Apache-2.0
// The flash array and its buses in device time: computes when a read, program or erase ends.
//
// Calls come in the order in which the firmware issues them. A die runs them in that order; a transfer takes the first
// free moment of its bus. All arithmetic is on integers: the same calls give the same times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "nand/geometry.hpp"
#include "nand/timeline.hpp"
#include "nand/timing.hpp"
#include "trace.hpp"

namespace kvdrive {

// The destination of data that leaves the channel.
enum class Sink : std::uint8_t {
  kHost,      // over PCIe
  kComputer,  // to the engine's memory
  kFirmware,  // stays in the controller, for garbage collection or a copy of a group
};

struct PageRead {
  std::uint32_t die = 0;
  std::uint32_t page = 0;          // number within the block; decides the page type
  std::uint32_t erases = 0;        // erases of the block so far
  std::uint32_t planes = 1;        // planes that are sensed together
  std::uint32_t bytes = 0;         // bytes of all planes that cross the channel
  std::uint32_t wanted_bytes = 0;  // bytes that the page filter lets through
  TraceWork work = TraceWork::kSense;
};

struct EccCounters {
  std::uint64_t reads_retried = 0;
  std::uint64_t sensings = 0;  // repeated sensings only: the first one of each read does not count
};

struct ChannelCounters {
  std::uint64_t bytes = 0;
  Ns busy_ns = 0;
};

class NandDevice {
 public:
  NandDevice(const Geometry& geometry, const Timing& timing);

  // Each of these returns the time at which the operation ends. `ready` is the time at which the firmware has issued
  // it.
  Ns read(const PageRead& page, Ns ready, Sink sink);
  Ns program(std::uint32_t die, std::uint32_t page, std::uint32_t bytes, Ns ready);
  Ns erase(std::uint32_t die, Ns ready);

  // Returns the time at which a buffered write of `bytes` is acknowledged: after PCIe and firmware time, and when
  // programs in flight have left room in the write buffer.
  Ns accept_write(std::uint64_t bytes, Ns arrival);

  Ns to_host(std::uint64_t bytes, Ns ready) {
    return use(pcie_, TraceTrack::kPcie, 0, ready, timing_.pcie.transfer(bytes), bytes);
  }
  Ns to_memory(std::uint64_t bytes, Ns ready);
  Ns firmware_read(std::uint32_t bytes) const;

  // Precondition of all later calls: they start at `now` or later.
  void advance(Ns now);
  Ns now() const { return now_; }
  // When the reads and programs of a die that were issued so far end.
  Ns free_at(std::uint32_t die) const { return std::max(dies_[die].free_at, dies_[die].busy_until); }
  // When the die can begin another read, which may suspend a program or erase.
  Ns readable_at(std::uint32_t die) const { return timing_.suspend_ns > 0 ? dies_[die].free_at : free_at(die); }
  // The earliest time after which PCIe, or the channel of a die, is busy for at most `work` ns, as far as it is known.
  Ns when_host_link_has(Ns work) const { return pcie_.when_left(work); }
  Ns when_channel_has(std::uint32_t die, Ns work) const { return channels_[die % geometry_.channels].when_left(work); }
  Ns host_link_busy_ns() const { return pcie_.busy_ns(); }

  // Fault injection: the die takes `percent` of its normal time for sensing and programming.
  void slow_down(std::uint32_t die, std::uint32_t percent) { dies_.at(die).percent = percent; }

  const Timing& timing() const { return timing_; }
  Trace& trace() { return trace_; }
  ChannelCounters channel(std::uint32_t number) const;
  std::uint64_t memory_bytes() const { return memory_bytes_; }
  const EccCounters& ecc() const { return ecc_; }

 private:
  struct Die {
    Ns free_at = 0;     // reads start here
    Ns busy_until = 0;  // end of the program or erase that a read may suspend
    std::uint32_t percent = 100;
  };
  struct Release {
    Ns when;
    std::uint64_t bytes;
    bool operator>(const Release& other) const { return when > other.when; }
  };

  Ns use(Timeline& bus, TraceTrack track, std::uint32_t number, Ns ready, Ns length, std::uint64_t bytes) {
    const Ns end = bus.occupy(ready, length);
    trace_.add(track, number, TraceWork::kTransfer, end - length, end, bytes);
    return end;
  }
  Ns start_read(Die& die, Ns ready, Ns sensing);
  Ns move(std::uint32_t channel, const PageRead& page, Ns sensed, Sink sink, Ns& last_on_bus);
  std::uint32_t sensings(std::uint32_t erases);
  std::uint32_t page_type(std::uint32_t page) const { return page % timing_.page_types; }

  Geometry geometry_;
  Timing timing_;
  std::vector<Die> dies_;
  std::vector<Timeline> channels_;
  std::vector<std::uint64_t> channel_bytes_;
  Timeline pcie_, peer_, dram_;
  Ns now_ = 0;  // of the latest `advance`
  std::priority_queue<Release, std::vector<Release>, std::greater<>> releases_;
  std::uint64_t buffered_bytes_ = 0;
  std::uint64_t memory_bytes_ = 0;
  std::uint64_t reads_ = 0;
  EccCounters ecc_;
  Trace trace_;
};

}  // namespace kvdrive
