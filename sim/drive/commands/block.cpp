// SPDX-License-Identifier: Apache-2.0
// Namespace 1: logical blocks, and FLUSH, which makes everything in the drive durable.
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

std::optional<std::uint64_t> block_bytes(const abi::Sqe& command, const Drive&) { return range_of(command).bytes(); }

std::uint64_t ranges_of(const abi::Sqe& command) { return (command.cdw10 & 0xff) + 1; }

// Refuses a range that ends beyond the namespace.
Reply out_of_range(const BlockStore& blocks, std::uint64_t first, std::uint16_t location = kInCdw10) {
  return {.status = kScLbaOutOfRange, .location = location, .lba = std::max(first, blocks.size())};
}

std::optional<std::uint64_t> dataset_bytes(const abi::Sqe& command, const Drive&) {
  return ranges_of(command) * sizeof(DatasetRange);
}

Reply flush(DriveState& drive, const Request&) { return {.done = drive.flush()}; }

// Fills `reply` with the contents of the blocks and the time at which they have arrived. If a page is lost, sets the
// error status and the first unreadable block.
void read_range(DriveState& drive, const BlockRange& range, Reply& reply) {
  const std::size_t before = reply.data.size();
  reply.data.resize(before + range.bytes());
  const std::span<std::byte> to = std::span(reply.data).subspan(before);
  BlockStore& blocks = drive.volume.blocks();
  const Ns ready = drive.now + drive.volume.device().firmware_read(static_cast<std::uint32_t>(range.bytes()));
  const auto found = blocks.read(range.first, to, ready);
  reply.done = std::max(reply.done, found.done);
  if (found.whole) {
    drive.counters.block_reads += range.count;
    return;
  }
  // The failed block is the first one that cannot be read alone either.
  reply.status = abi::kUnrecoveredRead;
  reply.lba = range.first;
  for (std::uint64_t i = 0; i < range.count; ++i) {
    if (blocks.read(range.first + i, to.subspan(i * kLbaBytes, kLbaBytes), ready).whole) continue;
    reply.lba = range.first + i;
    break;
  }
  reply.data.clear();
}

Reply read_blocks(DriveState& drive, const Request& request) {
  const BlockRange range = range_of(request.command);
  BlockStore& blocks = drive.volume.blocks();
  if (!blocks.holds(range.first, range.count)) return out_of_range(blocks, range.first);
  if (request.data.room < range.bytes()) return {.status = abi::kDataLength};
  Reply reply;
  read_range(drive, range, reply);
  return reply;
}

// Reads the blocks but sends no data.
Reply verify(DriveState& drive, const Request& request) {
  const BlockRange range = range_of(request.command);
  BlockStore& blocks = drive.volume.blocks();
  if (!blocks.holds(range.first, range.count)) return out_of_range(blocks, range.first);
  Reply reply;
  read_range(drive, range, reply);
  reply.data.clear();
  return reply;
}

Reply compare(DriveState& drive, const Request& request) {
  const BlockRange range = range_of(request.command);
  BlockStore& blocks = drive.volume.blocks();
  if (!blocks.holds(range.first, range.count)) return out_of_range(blocks, range.first);
  const std::span<const std::byte> want = request.data.in;
  if (want.size() != range.bytes()) return {.status = abi::kDataLength};
  Reply reply;
  read_range(drive, range, reply);
  if (reply.status != abi::kSuccess) return reply;
  const auto differs = std::ranges::mismatch(reply.data, want).in1 - reply.data.begin();
  if (static_cast<std::size_t>(differs) < want.size()) {
    reply.status = kScCompareFailure;
    reply.lba = range.first + static_cast<std::uint64_t>(differs) / kLbaBytes;
  }
  reply.data.clear();
  return reply;
}

Reply write_blocks(DriveState& drive, const Request& request) {
  const BlockRange range = range_of(request.command);
  BlockStore& blocks = drive.volume.blocks();
  if (!blocks.holds(range.first, range.count)) return out_of_range(blocks, range.first);
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

// Zeroed blocks take no flash.
Reply write_zeroes(DriveState& drive, const Request& request) {
  const BlockRange range = range_of(request.command);
  BlockStore& blocks = drive.volume.blocks();
  if (!blocks.holds(range.first, range.count)) return out_of_range(blocks, range.first);
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
  if (const auto bad = std::ranges::find_if_not(ranges, fits); bad != ranges.end()) {
    return out_of_range(blocks, bad->first_block, kNoLocation);
  }
  if (request.command.cdw11 & kDeallocate) {  // the other attributes are only hints
    for (const DatasetRange& range : ranges) blocks.deallocate(range.first_block, range.blocks);
  }
  return {.done = drive.now};
}

// CDW10-11: first block of the target. CDW12: number of source ranges (0's based), and their format in bits 11:8. All
// sources are read before anything is written, so they may overlap the target.
Reply copy(DriveState& drive, const Request& request) {
  const abi::Sqe& command = request.command;
  const std::size_t count = (command.cdw12 & 0xff) + 1;
  if (command.cdw12 >> 8 & 0xf) return {.status = abi::kInvalidField, .location = kInCdw12 + 1};
  if (count > kMaxCopyRanges) return {.status = kScCommandSizeLimit, .location = kInCdw12};
  if (request.data.in.size() != count * sizeof(CopyRange)) return {.status = abi::kDataLength};
  BlockStore& blocks = drive.volume.blocks();
  std::vector<BlockRange> sources;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto source = read_as<CopyRange>(request.data.in, i * sizeof(CopyRange));
    sources.push_back({source.first_block, source.blocks + std::uint64_t{1}});
    total += sources.back().count;
    if (sources.back().count > kMaxCopyRangeBlocks) return {.status = kScCommandSizeLimit};
    if (!blocks.holds(sources.back().first, sources.back().count)) {
      return out_of_range(blocks, sources.back().first, kNoLocation);
    }
  }
  if (total > kMaxCopyBlocks) return {.status = kScCommandSizeLimit};
  const std::uint64_t target = range_of(command).first;
  if (!blocks.holds(target, total)) return out_of_range(blocks, target);
  Reply reply;
  for (const BlockRange& source : sources) {
    read_range(drive, source, reply);
    if (reply.status != abi::kSuccess) return reply;
  }
  drive.volume.ftl().set_time(reply.done);
  try {
    blocks.write(target, reply.data);
  } catch (const DriveFull&) {
    return {.status = abi::kCapacityExceeded};
  }
  drive.counters.block_writes += total;
  if (command.cdw12 & kForceUnitAccess) reply.done = drive.flush();
  reply.data.clear();
  return reply;
}

std::optional<std::uint64_t> copy_bytes(const abi::Sqe& command, const Drive&) {
  return ((command.cdw12 & 0xff) + 1) * sizeof(CopyRange);
}

constexpr Command kBlockCommands[] = {
    {.opcode = kNvmFlush, .nsid = abi::kNvm, .name = "FLUSH", .handler = flush, .broadcast = true},
    {.opcode = kNvmRead,
     .nsid = abi::kNvm,
     .name = "READ",
     .direction = Direction::kToHost,
     .length = block_bytes,
     .handler = read_blocks},
    {.opcode = kNvmWrite,
     .nsid = abi::kNvm,
     .name = "WRITE",
     .direction = Direction::kToController,
     .length = block_bytes,
     .effects = kChangesContents,
     .handler = write_blocks},
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
    {.opcode = kNvmVerify, .nsid = abi::kNvm, .name = "VERIFY", .handler = verify},
    {.opcode = kNvmCompare,
     .nsid = abi::kNvm,
     .name = "COMPARE",
     .direction = Direction::kToController,
     .length = block_bytes,
     .handler = compare},
    {.opcode = kNvmCopy,
     .nsid = abi::kNvm,
     .name = "COPY",
     .direction = Direction::kToController,
     .length = copy_bytes,
     .effects = kChangesContents,
     .handler = copy},
};

}  // namespace

std::span<const Command> block_commands() { return kBlockCommands; }

}  // namespace kvdrive::nvme
