// SPDX-License-Identifier: Apache-2.0
// What an AXI4 memory holds and how long it takes: buffers at device addresses, and a timing model in nanoseconds.
// The code is our own: it must be C++, as Verilator's models are, and free models (cocotbext-axi) are Python and answer
// in order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace openhls {

// Buffers in an address space. Between two there is room that nobody may touch.
class Buffers {
 public:
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kWidest = 128;  // bytes of the widest bus: its words around a buffer may be read
  static constexpr std::uint8_t kGuard = 0xa5;

  // A buffer of `bytes`, `offset` bytes into a page; returns its address.
  std::uint64_t add(std::size_t bytes, std::uint64_t offset = 0) {
    const std::uint64_t base = next_ + kPage + offset % kPage;
    Buffer buffer{base, bytes, std::vector<std::uint8_t>(bytes + 2 * kWidest, kGuard)};
    next_ = (base + bytes + kPage - 1) / kPage * kPage + kPage;
    buffers_.push_back(std::move(buffer));
    return base;
  }
  void clear() { *this = Buffers(); }
  void start_at(std::uint64_t address) { next_ = address / kPage * kPage; }

  std::uint8_t* data(std::size_t number) { return buffers_[number].bytes.data() + kWidest; }
  std::size_t size(std::size_t number) const { return buffers_[number].size; }

  // `bytes` of a bus word, of which some lie in a buffer; null if none does.
  const std::uint8_t* word(std::uint64_t address, std::size_t bytes) const {
    const Buffer* buffer = find(address, bytes);
    return buffer == nullptr ? nullptr : buffer->bytes.data() + (address + kWidest - buffer->base);
  }
  // Writes one byte; false outside all buffers.
  bool write(std::uint64_t address, std::uint8_t value) {
    Buffer* buffer = find(address, 1);
    if (buffer == nullptr) return false;
    buffer->bytes[address + kWidest - buffer->base] = value;
    return true;
  }

 private:
  struct Buffer {
    std::uint64_t base;
    std::size_t size;
    std::vector<std::uint8_t> bytes;  // with a guard before and after
  };
  Buffer* find(std::uint64_t address, std::size_t bytes) {
    for (Buffer& buffer : buffers_) {
      if (address + bytes > buffer.base && address < buffer.base + buffer.size) return &buffer;
    }
    return nullptr;
  }
  const Buffer* find(std::uint64_t address, std::size_t bytes) const {
    return const_cast<Buffers*>(this)->find(address, bytes);
  }

  std::vector<Buffer> buffers_;
  std::uint64_t next_ = 0;
};

struct Timing {
  double cycle_ns = 1000.0 / 300;
  double latency_ns = 0;     // from an address to its word, when nothing is in the way
  double bytes_per_ns = 0;   // 0: no limit
  double row_ns = 0;         // to close a row and open another
  double turnaround_ns = 0;  // between reads and writes
  double refresh_every_ns = 0;
  double refresh_ns = 0;
  double queue_ns = 0;  // work that is taken in advance; 0: any amount

  // A word each cycle, `latency` cycles after its address.
  static Timing ideal(double clock_mhz, double latency) {
    Timing timing;
    timing.cycle_ns = 1000 / clock_mhz;
    timing.latency_ns = latency * timing.cycle_ns;
    return timing;
  }
  // One channel of DDR4-2400: 19.2 GB/s, 60 ns when idle, rows of 8 KB in 16 banks, tRP + tRCD of 28 ns, 350 ns of
  // refresh each 7.8 us.
  static Timing ddr4(double clock_mhz) {
    Timing timing;
    timing.cycle_ns = 1000 / clock_mhz;
    timing.latency_ns = 60;
    timing.bytes_per_ns = 19.2;
    timing.row_ns = 28;
    timing.turnaround_ns = 8;
    timing.refresh_every_ns = 7800;
    timing.refresh_ns = 350;
    timing.queue_ns = 1500;
    return timing;
  }
};

// The data bus and the banks behind one controller, which several masters may share: first come, first served.
class Channel {
 public:
  explicit Channel(Timing timing = {}) : timing_(timing) {}
  const Timing& timing() const { return timing_; }

  // When a bus word that is asked for at `now` has been moved.
  double move(double now, std::uint64_t address, std::size_t bytes, bool write) {
    if (timing_.bytes_per_ns == 0) return now + timing_.latency_ns;
    double start = std::max(now, free_);
    Bank& bank = banks_[address / kRowBytes % kBanks];
    const std::uint64_t row = address / kRowBytes / kBanks;
    if (bank.row != row || !bank.open) {
      start = std::max(start, std::max(now, bank.free) + timing_.row_ns);
      bank.row = row;
      bank.open = true;
    }
    if (write != writing_) start += timing_.turnaround_ns;
    writing_ = write;
    const double next_interval = timing_.refresh_every_ns * (std::floor(start / timing_.refresh_every_ns) + 1);
    if (start > next_interval - timing_.refresh_ns) start = next_interval;  // an interval ends with the refresh
    free_ = start + static_cast<double>(bytes) / timing_.bytes_per_ns;
    bank.free = free_;
    return free_ + timing_.latency_ns;
  }
  bool full(double now) const { return timing_.queue_ns > 0 && free_ > now + timing_.queue_ns; }

 private:
  static constexpr std::uint64_t kRowBytes = 8192;
  static constexpr std::uint64_t kBanks = 16;
  struct Bank {
    std::uint64_t row = 0;
    bool open = false;
    double free = 0;
  };
  Timing timing_;
  Bank banks_[kBanks];
  double free_ = 0;
  bool writing_ = false;
};

}  // namespace openhls
