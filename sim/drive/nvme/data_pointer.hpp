// SPDX-License-Identifier: Apache-2.0
// Where a command's data lie in the ring segment: PRP entries and lists, SGL descriptors and segments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "commands/reply.hpp"
#include "commands/wire.hpp"

namespace kvdrive::nvme {

struct DataPieces {
  Status status = abi::kSuccess;
  std::vector<std::span<std::byte>> pieces{};  // in order; neighbours are one
  std::uint64_t bytes = 0;
};

// Follows the pointer of `command` (PSDT in its flags) within `segment`; data never lie before kRingHeap. PRP entries
// are followed for `bytes` bytes; an SGL says itself how long it is.
DataPieces find_data(std::span<std::byte> segment, const abi::Sqe& command, std::uint64_t bytes);

constexpr bool uses_sgl(const abi::Sqe& command) { return (command.flags & 0xc0) != 0; }

}  // namespace kvdrive::nvme
