// SPDX-License-Identifier: Apache-2.0
#include "nvme/data_pointer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace kvdrive::nvme {
namespace {

constexpr std::uint8_t kSglContiguousMetadata = 0x40, kSglFlags = 0xc0;
constexpr std::uint8_t kDataBlock = 0x0, kSegment = 0x2, kLastSegment = 0x3;
constexpr std::uint64_t kEntriesPerList = abi::kPageBytes / sizeof(std::uint64_t);
constexpr std::size_t kMaxDescriptors = 1 << 16;

class Walk {
 public:
  explicit Walk(std::span<std::byte> segment) : segment_(segment) {}

  DataPieces prp(const abi::Sqe& command, std::uint64_t bytes) {
    std::uint64_t left = bytes;
    if (left == 0) return std::move(found_);
    const std::uint64_t in_page = abi::kPageBytes - command.prp1 % abi::kPageBytes;
    if (command.prp1 % 4 != 0) return refuse(kScBadPrpOffset);
    if (!add(command.prp1, std::min(left, in_page))) return refuse(kScDataTransfer);
    left -= std::min(left, in_page);
    if (left == 0) return std::move(found_);
    if (left <= abi::kPageBytes) return last_page(command.prp2, left);
    return prp_lists(command.prp2, left);
  }

  DataPieces sgl(const abi::Sqe& command) {
    SglDescriptor descriptor = std::bit_cast<SglDescriptor>(std::array{command.prp1, command.prp2});
    std::size_t seen = 0;
    for (bool last = false;;) {
      const std::uint8_t type = descriptor.kind >> 4;
      if ((descriptor.kind & 0xf) != 0) return refuse(kScBadSglType);
      if (type == kDataBlock) {
        return add(descriptor.address, descriptor.length) ? std::move(found_) : refuse(kScDataTransfer);
      }
      if (last || (type != kSegment && type != kLastSegment)) return refuse(kScBadSglType);
      last = type == kLastSegment;
      const std::uint64_t count = descriptor.length / sizeof descriptor;
      if (count == 0 || descriptor.length % sizeof descriptor != 0) return refuse(kScBadSglSegment);
      seen += count;
      if (seen > kMaxDescriptors) return refuse(kScBadSglCount);
      if (!holds(descriptor.address, descriptor.length)) return refuse(kScDataTransfer);
      const std::uint64_t at = descriptor.address;
      for (std::uint64_t i = 0; i < count; ++i) {
        std::memcpy(&descriptor, segment_.data() + at + i * sizeof descriptor, sizeof descriptor);
        const bool data = descriptor.kind >> 4 == kDataBlock;
        if (!data && (last || i + 1 < count)) return refuse(kScBadSglType);
        if (!data) break;  // the pointer to the next segment
        if ((descriptor.kind & 0xf) != 0) return refuse(kScBadSglType);
        if (!add(descriptor.address, descriptor.length)) return refuse(kScDataTransfer);
        if (i + 1 == count) return last ? std::move(found_) : refuse(kScBadSglSegment);
      }
    }
  }

 private:
  DataPieces last_page(std::uint64_t address, std::uint64_t bytes) {
    if (address % abi::kPageBytes != 0) return refuse(kScBadPrpOffset);
    return add(address, bytes) ? std::move(found_) : refuse(kScDataTransfer);
  }

  // A list may begin in the middle of its page. If more than one page of data is left, its last entry points to the
  // next list.
  DataPieces prp_lists(std::uint64_t list, std::uint64_t left) {
    std::uint64_t at = list % abi::kPageBytes / sizeof(std::uint64_t);
    if (list % sizeof(std::uint64_t) != 0) return refuse(kScBadPrpOffset);
    list -= list % abi::kPageBytes;
    while (left > 0) {
      if (!holds(list, abi::kPageBytes)) return refuse(kScDataTransfer);
      std::uint64_t entry;
      std::memcpy(&entry, segment_.data() + list + at * sizeof entry, sizeof entry);
      if (entry % abi::kPageBytes != 0) return refuse(kScBadPrpOffset);
      if (++at == kEntriesPerList && left > abi::kPageBytes) {
        list = entry;
        at = 0;
        continue;
      }
      const std::uint64_t bytes = std::min<std::uint64_t>(left, abi::kPageBytes);
      if (!add(entry, bytes)) return refuse(kScDataTransfer);
      left -= bytes;
    }
    return std::move(found_);
  }

  bool holds(std::uint64_t address, std::uint64_t bytes) const {
    return address >= kRingHeap && address <= segment_.size() && bytes <= segment_.size() - address;
  }

  // Keeps a transfer from being longer than the segment.
  bool add(std::uint64_t address, std::uint64_t bytes) {
    if (!holds(address, bytes) || found_.bytes + bytes > segment_.size()) return false;
    if (bytes == 0) return true;
    std::byte* const start = segment_.data() + address;
    auto& pieces = found_.pieces;
    if (!pieces.empty() && pieces.back().data() + pieces.back().size() == start) {
      pieces.back() = {pieces.back().data(), pieces.back().size() + bytes};
    } else {
      pieces.emplace_back(start, bytes);
    }
    found_.bytes += bytes;
    return true;
  }

  static DataPieces refuse(Status status) { return {.status = status}; }

  std::span<std::byte> segment_;
  DataPieces found_;
};

}  // namespace

DataPieces find_data(std::span<std::byte> segment, const abi::Sqe& command, std::uint64_t bytes) {
  Walk walk(segment);
  if (!uses_sgl(command)) return walk.prp(command, bytes);
  if ((command.flags & kSglFlags) != kSglContiguousMetadata) return {.status = abi::kInvalidField};
  return walk.sgl(command);
}

}  // namespace kvdrive::nvme
