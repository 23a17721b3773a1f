// SPDX-License-Identifier: Apache-2.0
#include "commands/local_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
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
  madvise(bytes_.data(), bytes_.size(), MADV_DONTNEED);  // anonymous pages come back empty
}

Reply LocalMemory::execute(const abi::Sqe& command, std::span<const std::byte> data, std::uint64_t room) {
  const std::uint64_t start = command.cdw10 | std::uint64_t{command.cdw11} << 32;
  const std::uint32_t length = command.cdw12;
  if (start % kMemoryAlignment != 0 || length % kMemoryAlignment != 0) return {.status = abi::kInvalidField};
  if (start > size() || length > size() - start) return {.status = kScLbaOutOfRange};
  const std::lock_guard lock(mutex_);
  const auto part = bytes_.subspan(start, length);
  switch (command.opcode) {
    case kMemoryRead:
      if (room < length) return {.status = abi::kDataLength};
      return {.data = {part.begin(), part.end()}};
    case kMemoryWrite:
      if (data.size() != length) return {.status = abi::kDataLength};
      std::ranges::copy(data, part.begin());
      return {};
    case kMemoryFill:
      for (std::uint32_t at = 0; at < length; at += 4) std::memcpy(part.data() + at, &command.cdw13, 4);
      return {};
    default:
      return {.status = abi::kInvalidOpcode};
  }
}

}  // namespace kvdrive::nvme
