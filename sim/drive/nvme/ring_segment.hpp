// SPDX-License-Identifier: Apache-2.0
// The memory that a host and a drive share: properties, doorbells, queues and data (layout: struct RingSegment).
//
// Everything that a PCIe device keeps in its BAR and in host memory lies in this one segment. "Physical" addresses are
// byte offsets in it. Either side may be hostile or crashed, so nothing read from the segment is trusted.
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
  // Makes an anonymous segment whose size is sealed. Throws std::system_error, and std::runtime_error for an invalid
  // size.
  static RingMemory create(std::uint64_t bytes);
  // Maps a segment that another process made, and takes ownership of the descriptor. Throws like `create`, and for a
  // wrong layout.
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

// Typed access to the words of the segment that both sides see.
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

  // To be called after a write to a doorbell or a property.
  void wake_device() const;
  // To be called after completions were posted.
  void wake_host() const;

 private:
  std::atomic_ref<std::uint32_t> doorbell(std::uint32_t index) const {
    return word(kRingRegisters + kDoorbells + index * sizeof(std::uint32_t));
  }

  std::span<std::byte> bytes_;
};

// Sleeps while `word` equals `seen`, for at most `longest`. May return early.
void sleep_on(std::atomic_ref<std::uint32_t> word, std::uint32_t seen, std::chrono::milliseconds longest);

}  // namespace kvdrive::nvme
