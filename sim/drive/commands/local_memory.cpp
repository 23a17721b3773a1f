// SPDX-License-Identifier: Apache-2.0
#include "commands/local_memory.hpp"

#include <sys/mman.h>

#include <new>

namespace kvdrive::nvme {

LocalMemory::LocalMemory(std::uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  bytes_ = {static_cast<std::byte*>(memory), bytes};
}

LocalMemory::~LocalMemory() { munmap(bytes_.data(), bytes_.size()); }

void LocalMemory::clear() {
  const std::lock_guard lock(mutex_);
  madvise(bytes_.data(), bytes_.size(), MADV_DONTNEED);  // anonymous pages read as zeros afterwards
}

}  // namespace kvdrive::nvme
