// SPDX-License-Identifier: Apache-2.0
// Namespace 2: drive memory. READ, WRITE, FILL.
#include <algorithm>

#include "commands/local_memory.hpp"
#include "commands/table.hpp"

namespace kvdrive::nvme {
namespace {

// CDW10-11: first byte; CDW12: length.
std::uint64_t start_of(const abi::Sqe& command) { return command.cdw10 | std::uint64_t{command.cdw11} << 32; }

std::optional<std::uint64_t> length_of(const abi::Sqe& command, const Drive&) { return command.cdw12; }

// Calls `work` with the bytes in the command's range.
template <typename Work>
Reply with_range(LocalMemory& memory, const abi::Sqe& command, Work work) {
  const std::uint64_t start = start_of(command), length = command.cdw12;
  if (start % kMemoryAlignment != 0) return {.status = abi::kInvalidField, .location = kInCdw10};
  if (length % kMemoryAlignment != 0) return {.status = abi::kInvalidField, .location = kInCdw12};
  if (start > memory.size() || length > memory.size() - start) {
    return {.status = kScLbaOutOfRange, .location = kInCdw10, .lba = start};
  }
  return memory.with(start, length, work);
}

Reply read_memory(LocalMemory& memory, const Request& request) {
  return with_range(memory, request.command, [&](std::span<std::byte> part) -> Reply {
    if (request.data.room < part.size()) return {.status = abi::kDataLength};
    return {.data = {part.begin(), part.end()}};
  });
}

Reply write_memory(LocalMemory& memory, const Request& request) {
  return with_range(memory, request.command, [&](std::span<std::byte> part) -> Reply {
    if (request.data.in.size() != part.size()) return {.status = abi::kDataLength};
    std::ranges::copy(request.data.in, part.begin());
    return {};
  });
}

// CDW13: the value.
Reply fill(LocalMemory& memory, const Request& request) {
  return with_range(memory, request.command, [&](std::span<std::byte> part) -> Reply {
    for (std::size_t at = 0; at < part.size(); at += 4) std::memcpy(part.data() + at, &request.command.cdw13, 4);
    return {};
  });
}

constexpr Command kMemoryCommands[] = {
    {.opcode = kMemoryRead,
     .nsid = kNsidMemory,
     .name = "MEMORY_READ",
     .direction = Direction::kToHost,
     .length = length_of,
     .handler = read_memory},
    {.opcode = kMemoryWrite,
     .nsid = kNsidMemory,
     .name = "MEMORY_WRITE",
     .direction = Direction::kToController,
     .length = length_of,
     .effects = kChangesContents,
     .handler = write_memory},
    {.opcode = kMemoryFill, .nsid = kNsidMemory, .name = "MEMORY_FILL", .effects = kChangesContents, .handler = fill},
};

}  // namespace

std::span<const Command> memory_commands() { return kMemoryCommands; }

}  // namespace kvdrive::nvme
