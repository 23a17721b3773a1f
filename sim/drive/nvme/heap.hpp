// SPDX-License-Identifier: Apache-2.0
// Allocates whole pages of a ring segment for the host's queues and data: first fit; adjacent free ranges are merged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "common/abi.hpp"

namespace kvdrive::nvme {

class Heap {
 public:
  struct Block {
    std::uint64_t address = 0, bytes = 0;  // 0 bytes: no allocation
  };

  Heap(std::uint64_t first, std::uint64_t end) : size_(end - first) { free_[first] = size_; }

  std::uint64_t size() const { return size_; }

  std::optional<Block> take(std::uint64_t bytes) {
    if (bytes == 0) return Block{};
    const std::uint64_t whole = (bytes + abi::kPageBytes - 1) / abi::kPageBytes * abi::kPageBytes;
    for (auto entry = free_.begin(); entry != free_.end(); ++entry) {
      const auto [address, room] = *entry;
      if (room < whole) continue;
      free_.erase(entry);
      if (room > whole) free_[address + whole] = room - whole;
      return Block{address, whole};
    }
    return std::nullopt;
  }

  void give_back(const Block& block) {
    if (block.bytes == 0) return;
    auto entry = free_.emplace(block.address, block.bytes).first;
    const auto next = std::next(entry);
    if (next != free_.end() && entry->first + entry->second == next->first) {
      entry->second += next->second;
      free_.erase(next);
    }
    if (entry == free_.begin()) return;
    const auto before = std::prev(entry);
    if (before->first + before->second == entry->first) {
      before->second += entry->second;
      free_.erase(entry);
    }
  }

 private:
  std::uint64_t size_;
  std::map<std::uint64_t, std::uint64_t> free_;  // address to bytes
};

}  // namespace kvdrive::nvme
