// SPDX-License-Identifier: Apache-2.0
#include "commands/programs.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "commands/table.hpp"
#include "common/abi.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::array<std::string_view, Programs::kCount> kNames{"DENSE", "SPARF", "PARTIAL", "GROUPS", "FFN"};
constexpr std::uint8_t kDeviceDefined = 1;

}  // namespace

std::uint32_t program_of(std::uint8_t mode) {
  switch (mode) {
    case abi::kExact:
      return kProgramDense;
    case abi::kPartial:
      return kProgramPartial;
    case abi::kSparfRows:
    case abi::kSparfTokens:
    case abi::kSparfAttend:
      return kProgramSparf;
    case abi::kGroups:
      return kProgramGroups;
    default:
      return Programs::kCount;
  }
}

Reply Programs::load(const abi::Sqe& command) {
  const bool there = (command.cdw10 & 0xffff) < kCount;
  return {.status = there ? kScProgramNotDownloadable : kScInvalidProgramIndex, .location = kInCdw10};
}

// CDW10: program, then 1 to activate or 0 to deactivate in bits 19:16.
Reply Programs::activate(const abi::Sqe& command) {
  const std::uint32_t program = command.cdw10 & 0xffff, select = command.cdw10 >> 16 & 0xf;
  if (select > 1) return {.status = abi::kInvalidField, .location = kInCdw10 + 2};
  if (program >= kCount) return {.status = kScInvalidProgramIndex, .location = kInCdw10};
  drive_.activate_program(program, select == 1);
  return {};
}

std::uint32_t Programs::range_bytes(const abi::Sqe& command) {
  const bool create = (command.cdw10 & 0xf) == 0;
  return create && command.cdw11 <= kMaxMemoryRanges ? command.cdw11 * sizeof(MemoryRange) : 0;
}

// CDW10: 0 create or 1 delete in bits 3:0, the set to delete in bits 31:16. CDW11: number of ranges. The result is the
// number of the new set.
Reply Programs::change_ranges(const abi::Sqe& command, std::span<const std::byte> data) {
  const std::uint32_t select = command.cdw10 & 0xf;
  const std::lock_guard lock(mutex_);
  if (select == 1) {
    const bool there = sets_.erase(static_cast<std::uint16_t>(command.cdw10 >> 16)) > 0;
    if (!there) return {.status = kScInvalidMemoryRangeSetId, .location = kInCdw10 + 2};
    return {};
  }
  if (select != 0) return {.status = abi::kInvalidField, .location = kInCdw10};
  if (command.cdw11 == 0) return {.status = abi::kInvalidField, .location = kInCdw11};
  if (command.cdw11 > kMaxMemoryRanges) return {.status = kScMemoryRangesExceeded, .location = kInCdw11};
  if (data.size() < sizeof(MemoryRange)) return {.status = abi::kDataLength};
  const auto range = read_as<MemoryRange>(data);
  if (range.nsid != kNsidMemory) return {.status = kScInvalidMemoryNamespace};
  if (!fits(range)) return {.status = kScInvalidMemoryRangeSet};
  std::uint16_t number = 1;
  while (sets_.contains(number)) ++number;
  if (number > kMaxMemoryRangeSets) return {.status = kScMemoryRangeSetsExceeded};
  sets_.emplace(number, range);
  return {.result = number};
}

bool Programs::fits(const MemoryRange& range) const {
  return range.length > 0 && range.start % abi::kBeatBytes == 0 && range.length % abi::kBeatBytes == 0 &&
         range.start <= memory_.size() && range.length <= memory_.size() - range.start;
}

Reply Programs::execute(const Request& request) {
  const abi::Sqe& command = request.command;
  const std::uint32_t program = command.cdw2 & 0xffff;
  const std::uint64_t job = command.cdw12 | std::uint64_t{command.cdw13} << 32;
  if (command.cdw3 != 0) return {.status = abi::kInvalidField, .location = kInCdw2 + 4};
  if (command.cdw10 != 0) return {.status = abi::kInvalidField, .location = kInCdw10};
  if (command.cdw11 != 0) return {.status = abi::kInvalidField, .location = kInCdw11};
  if (program >= kCount) return {.status = kScInvalidProgramIndex};
  if (!drive_.program_active(program)) return {.status = kScProgramNotActivated};
  MemoryRange range;
  {
    const std::lock_guard lock(mutex_);
    const auto set = sets_.find(static_cast<std::uint16_t>(command.cdw2 >> 16));
    if (set == sets_.end()) return {.status = kScInvalidMemoryRangeSetId};
    range = set->second;
  }
  if (job % abi::kBeatBytes != 0 || job > range.length || range.length - job < sizeof(abi::AttentionJob)) {
    return {.status = kScInvalidMemoryRangeSet};
  }
  return memory_.with(range.start, range.length, [&](std::span<std::byte> memory) -> Reply {
    if (program_of(read_as<abi::AttentionJob>(memory, job).mode) != program) return {.status = abi::kInvalidField};
    const std::uint32_t status = drive_.run_job(memory, job, request.queue);
    return {.status = status == 0 ? Status{abi::kSuccess} : Status{abi::kJobRefused}, .result = status};
  });
}

std::vector<std::byte> Programs::descriptors() const {
  std::array<ProgramDescriptor, kCount> all{};
  for (std::uint32_t i = 0; i < kCount; ++i) {
    all[i].occupied = 1;
    all[i].active = drive_.program_active(i);
    all[i].kind = kDeviceDefined;
    all[i].index = static_cast<std::uint16_t>(i);
    std::ranges::copy(kNames[i], all[i].name);
  }
  return bytes_of(all);
}

std::uint32_t Programs::active() const {
  std::uint32_t active = 0;
  for (std::uint32_t i = 0; i < kCount; ++i) active += drive_.program_active(i);
  return active;
}

namespace {

std::optional<std::uint64_t> no_bytes(const abi::Sqe&, const Drive&) { return 0; }  // the field DLEN is not used

constexpr StatusField kProgramFields[] = {
    {kScInvalidProgramIndex, kInCdw2},
    {kScProgramNotActivated, kInCdw2},
    {kScInvalidMemoryRangeSetId, kInCdw2 + 2},
    {kScInvalidMemoryRangeSet, kInCdw12},
};

constexpr Command kProgramCommands[] = {
    {.opcode = kExecuteProgram,
     .nsid = abi::kCp,
     .name = "EXECUTE_PROGRAM",
     .direction = Direction::kToController,
     .length = no_bytes,
     .effects = kChangesContents,
     .handler = [](Programs& programs, const Request& request) { return programs.execute(request); },
     .fields = kProgramFields},
};

}  // namespace

std::span<const Command> program_commands() { return kProgramCommands; }

}  // namespace kvdrive::nvme
