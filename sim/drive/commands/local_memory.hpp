// SPDX-License-Identifier: Apache-2.0
// Namespace 2: drive memory that the host reads and writes and that programs work on. Its contents are lost when the
// drive is closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

namespace kvdrive::nvme {

class LocalMemory {
 public:
  // Throws std::bad_alloc. Pages that were never touched take no memory.
  explicit LocalMemory(std::uint64_t bytes);
  ~LocalMemory();
  LocalMemory(const LocalMemory&) = delete;
  LocalMemory& operator=(const LocalMemory&) = delete;

  std::uint64_t size() const { return bytes_.size(); }
  // Sets everything to zero.
  void clear();

  // Calls `work` with part of the memory while no other caller uses it. Precondition: the range lies within the memory.
  template <typename Work>
  auto with(std::uint64_t start, std::uint64_t length, Work work) {
    const std::lock_guard lock(mutex_);
    return work(bytes_.subspan(start, length));
  }

 private:
  std::mutex mutex_;
  std::span<std::byte> bytes_;
};

}  // namespace kvdrive::nvme
