// SPDX-License-Identifier: Apache-2.0
// Finds a command's data in the ring segment from its PRP entries and lists, or its SGL descriptors and segments.
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
  std::vector<std::span<std::byte>> pieces{};  // in order; adjacent pieces are merged
  std::uint64_t bytes = 0;
};

// Follows the data pointer of `command` (PSDT in its flags) within `segment`. Data below kRingHeap are refused. PRP
// entries are followed for `bytes` bytes; an SGL holds its own length.
DataPieces find_data(std::span<std::byte> segment, const abi::Sqe& command, std::uint64_t bytes);

constexpr bool uses_sgl(const abi::Sqe& command) { return (command.flags & 0xc0) != 0; }

}  // namespace kvdrive::nvme
