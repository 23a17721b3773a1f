// SPDX-License-Identifier: Apache-2.0
// Namespace 1: logical blocks, and FLUSH of everything that the drive stores.
#include <algorithm>
#include <cstring>
#include <vector>

#include "commands/drive_state.hpp"
#include "commands/table.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::uint32_t kForceUnitAccess = 1u << 30;  // CDW12
constexpr std::uint32_t kDeallocate = 1u << 2;        // CDW11 of dataset management

// CDW10-11: first block; CDW12: blocks, 0's based.
struct BlockRange {
  std::uint64_t first, count;
  std::uint64_t bytes() const { return count * kLbaBytes; }
};

BlockRange range_of(const abi::Sqe& command) {
  return {command.cdw10 | std::uint64_t{command.cdw11} << 32, (command.cdw12 & 0xffff) + std::uint64_t{1}};
}

std::optional<std::uint64_t> range_bytes(const abi::Sqe& command, const Drive&) { return range_of(command).bytes(); }

std::uint64_t ranges_of(const abi::Sqe& command) { return (command.cdw10 & 0xff) + 1; }

std::optional<std::uint64_t> dataset_bytes(const abi::Sqe& command, const Drive&) {
  return ranges_of(command) * sizeof(DatasetRange);
}

Reply flush(DriveState& drive, const Request&) { return {.done = drive.flush()}; }

Reply read(DriveState& drive, const Request& request) {
  const BlockRange range = range_of(request.command);
  BlockStore& blocks = drive.volume.blocks();
  if (!blocks.holds(range.first, range.count)) return {.status = kScLbaOutOfRange};
  if (request.data.room < range.bytes()) return {.status = abi::kDataLength};
  Reply reply;
  reply.data.resize(range.bytes());
  const Ns ready = drive.now + drive.volume.device().firmware_read(static_cast<std::uint32_t>(range.bytes()));
  const auto found = blocks.read(range.first, reply.data, ready);
  if (!found.whole) return {.status = abi::kUnrecoveredRead};
  drive.counters.block_reads += range.count;
  reply.done = found.done;
  return reply;
}

Reply write(DriveState& drive, const Request& request) {
  const BlockRange range = range_of(request.command);
  BlockStore& blocks = drive.volume.blocks();
  if (!blocks.holds(range.first, range.count)) return {.status = kScLbaOutOfRange};
  if (request.data.in.size() != range.bytes()) return {.status = abi::kDataLength};
  Reply reply;
  reply.done = drive.volume.device().accept_write(range.bytes(), drive.now);
  drive.volume.ftl().set_time(reply.done);
  try {
    blocks.write(range.first, request.data.in);
  } catch (const DriveFull&) {
    return {.status = abi::kCapacityExceeded};
  }
  drive.counters.block_writes += range.count;
  if (request.command.cdw12 & kForceUnitAccess) reply.done = drive.flush();
  return reply;
}

// Zeros take no flash.
Reply write_zeroes(DriveState& drive, const Request& request) {
  const BlockRange range = range_of(request.command);
  BlockStore& blocks = drive.volume.blocks();
  if (!blocks.holds(range.first, range.count)) return {.status = kScLbaOutOfRange};
  blocks.deallocate(range.first, range.count);
  const bool durable = request.command.cdw12 & kForceUnitAccess;
  return {.done = durable ? drive.flush() : drive.now};
}

Reply manage_dataset(DriveState& drive, const Request& request) {
  const std::size_t count = ranges_of(request.command);
  const std::span<const std::byte> data = request.data.in;
  if (data.size() != count * sizeof(DatasetRange)) return {.status = abi::kDataLength};
  std::vector<DatasetRange> ranges(count);
  std::memcpy(ranges.data(), data.data(), data.size());
  BlockStore& blocks = drive.volume.blocks();
  const auto fits = [&](const DatasetRange& range) { return blocks.holds(range.first_block, range.blocks); };
  if (!std::ranges::all_of(ranges, fits)) return {.status = kScLbaOutOfRange};
  if (request.command.cdw11 & kDeallocate) {  // the other attributes are hints
    for (const DatasetRange& range : ranges) blocks.deallocate(range.first_block, range.blocks);
  }
  return {.done = drive.now};
}

constexpr Command kCommands[] = {
    {.opcode = kNvmFlush, .nsid = abi::kNvm, .name = "FLUSH", .handler = flush, .broadcast = true},
    {.opcode = kNvmRead,
     .nsid = abi::kNvm,
     .name = "READ",
     .direction = Direction::kToHost,
     .length = range_bytes,
     .handler = read},
    {.opcode = kNvmWrite,
     .nsid = abi::kNvm,
     .name = "WRITE",
     .direction = Direction::kToController,
     .length = range_bytes,
     .effects = kChangesContents,
     .handler = write},
    {.opcode = kNvmWriteZeroes,
     .nsid = abi::kNvm,
     .name = "WRITE_ZEROES",
     .effects = kChangesContents,
     .handler = write_zeroes},
    {.opcode = kNvmDatasetManagement,
     .nsid = abi::kNvm,
     .name = "DATASET_MANAGEMENT",
     .direction = Direction::kToController,
     .length = dataset_bytes,
     .effects = kChangesContents,
     .handler = manage_dataset},
};

}  // namespace

std::span<const Command> block_commands() { return kCommands; }

}  // namespace kvdrive::nvme
