// SPDX-License-Identifier: Apache-2.0
// The memory that a host and a drive share: properties, doorbells, queues and data (layout: struct RingSegment).
//
// What a PCIe device has in its BAR and in host memory lies in one segment here; "physical" addresses are byte offsets
// in it. Either side may be a hostile or crashed process: nothing read from the segment is trusted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "commands/wire.hpp"

namespace kvdrive::nvme {

// A mapped segment. Owns the mapping and its file descriptor.
class RingMemory {
 public:
  // A new anonymous segment that nobody can resize. Throws std::system_error, std::runtime_error for a senseless size.
  static RingMemory create(std::uint64_t bytes);
  // Maps a segment that another process made; takes the descriptor. Throws like `create`, and for a wrong layout.
  static RingMemory attach(int fd);
  ~RingMemory();
  RingMemory(RingMemory&& other) noexcept;
  RingMemory& operator=(RingMemory&&) = delete;

  int fd() const { return fd_; }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  RingMemory(int fd, std::span<std::byte> bytes) : fd_(fd), bytes_(bytes) {}

  int fd_;
  std::span<std::byte> bytes_;
};

// Words of the segment, seen by both sides.
class RingView {
 public:
  explicit RingView(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::atomic_ref<std::uint32_t> word(std::size_t offset) const {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(bytes_.data() + offset));
  }
  std::atomic_ref<std::uint64_t> wide(std::size_t offset) const {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(bytes_.data() + offset));
  }
  std::atomic_ref<std::uint32_t> property(Property offset) const { return word(kRingRegisters + offset); }
  std::atomic_ref<std::uint64_t> wide_property(Property offset) const { return wide(kRingRegisters + offset); }
  std::atomic_ref<std::uint32_t> sq_tail(std::uint32_t queue) const { return doorbell(2 * queue); }
  std::atomic_ref<std::uint32_t> cq_head(std::uint32_t queue) const { return doorbell(2 * queue + 1); }

  std::span<std::byte> bytes() const { return bytes_; }
  std::atomic_ref<std::uint32_t> device_event() const { return word(offsetof(RingSegment, device_event)); }
  std::atomic_ref<std::uint32_t> device_sleeps() const { return word(offsetof(RingSegment, device_sleeps)); }
  std::atomic_ref<std::uint32_t> host_event() const { return word(offsetof(RingSegment, host_event)); }
  std::atomic_ref<std::uint32_t> host_waiters() const { return word(offsetof(RingSegment, host_waiters)); }

  // After a doorbell or a property was written.
  void wake_device() const;
  // After completions were posted.
  void wake_host() const;

 private:
  std::atomic_ref<std::uint32_t> doorbell(std::uint32_t index) const {
    return word(kRingRegisters + kDoorbells + index * sizeof(std::uint32_t));
  }

  std::span<std::byte> bytes_;
};

// Sleeps while `word` is `seen`, at most `longest`; may return early.
void sleep_on(std::atomic_ref<std::uint32_t> word, std::uint32_t seen, std::chrono::milliseconds longest);

}  // namespace kvdrive::nvme
