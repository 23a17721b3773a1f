// SPDX-License-Identifier: Apache-2.0
#include "commands/subsystem.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <variant>

#include "commands/table.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::size_t kMaxNqn = 223, kMaxSerial = 20;
constexpr std::uint16_t kMaxControllers = 0xffef;

SubsystemOptions checked(SubsystemOptions options) {
  if (options.serial.empty()) options.serial = "kvdrive";
  if (options.nqn.empty()) options.nqn = "nqn.2026-11.io.kvdrive:" + options.serial;
  const auto printable = [](char c) { return c > ' ' && c < 0x7f; };
  if (options.serial.size() > kMaxSerial || !std::ranges::all_of(options.serial, printable)) {
    throw std::runtime_error("a serial number has at most 20 printable characters");
  }
  if (options.nqn.size() > kMaxNqn || !options.nqn.starts_with("nqn.") ||
      !std::ranges::all_of(options.nqn, printable)) {
    throw std::runtime_error("an NQN starts with 'nqn.' and has at most 223 printable characters");
  }
  if (options.slm_bytes == 0 || options.slm_bytes % abi::kPageBytes != 0) {
    throw std::runtime_error("the subsystem local memory is a multiple of 4096 bytes");
  }
  return options;
}

// The asynchronous event of type SMART for degraded reliability, and the feature bit that enables it.
constexpr std::uint32_t kReliabilityEvent = 0x1 | kLogSmart << 16, kReliabilityFeature = 0x4;

constexpr std::uint8_t kFuseMask = 0x3;

}  // namespace

Subsystem::Subsystem(Drive& drive, SubsystemOptions options)
    : drive_(drive), options_(checked(std::move(options))), memory_(options_.slm_bytes) {
  drive_.health().open();
}

std::uint16_t Subsystem::attach(AdminContext* controller) {
  const std::lock_guard lock(controllers_mutex_);
  auto free = std::ranges::find(controllers_, nullptr);
  if (free == controllers_.end()) {
    if (controllers_.size() >= kMaxControllers) throw std::runtime_error("the subsystem has no controller left");
    free = controllers_.insert(controllers_.end(), nullptr);
  }
  *free = controller;
  return static_cast<std::uint16_t>(free - controllers_.begin() + 1);
}

void Subsystem::detach(std::uint16_t id) {
  drive_.abandon(id);
  const std::lock_guard lock(controllers_mutex_);
  controllers_.at(id - 1u) = nullptr;
}

void Subsystem::broadcast(Event event, std::uint32_t enabled_by) {
  const std::lock_guard lock(controllers_mutex_);
  for (AdminContext* controller : controllers_) {
    if (controller) controller->raise(event, enabled_by);
  }
}

Reply Subsystem::execute(const Request& request, bool write_cache) {
  const Command* const row = find_command(QueueKind::kIo, request.command);
  if (!row) return drive_.execute(request);  // which refuses it
  Reply reply = dispatch(*row, request, write_cache);
  locate(*row, reply);
  count(row->direction, request, reply);
  if (reply.status == abi::kSuccess && row->effects & kChangesContents) sanitizer_.stored();
  const bool lost = reply.lost || reply.status == abi::kUnrecoveredRead || reply.status == kScUnrecoveredError;
  if (lost) broadcast(kReliabilityEvent, kReliabilityFeature);
  return reply;
}

Reply Subsystem::dispatch(const Command& row, const Request& request, bool write_cache) {
  if (request.command.flags & kFuseMask) return {.status = abi::kInvalidField, .location = kInFlags};
  if (const auto* const handler = std::get_if<MemoryHandler>(&row.handler)) return (*handler)(memory_, request);
  if (const auto* const handler = std::get_if<ProgramHandler>(&row.handler)) return (*handler)(programs_, request);
  Reply reply = drive_.execute(request);
  const bool stored = reply.status == abi::kSuccess && row.effects & kChangesContents;
  if (stored && !write_cache && drive_.flush() != abi::kSuccess) reply.status = abi::kInternalError;
  return reply;
}

// CDW10: LBA format in bits 3:0, protection in 7:5, secure erase in 11:9. Only 0 is supported in each.
Reply Subsystem::format(const abi::Sqe& command) {
  if (command.nsid != abi::kNvm && command.nsid != kNsidValues && command.nsid != kNsidAll) {
    return {.status = abi::kInvalidNamespace, .location = kInNsid};
  }
  if (command.cdw10 & 0xf || command.cdw10 >> 5 & 0x7) return {.status = kScBadFormat, .location = kInCdw10};
  if (command.cdw10 >> 9 & 0x7)
    return {.status = abi::kInvalidField, .location = kInCdw10 + 1};  // unsupported: flash is erased before its reuse
  return {.status = drive_.format(command.nsid)};
}

void Subsystem::count(Direction direction, const Request& request, const Reply& reply) {
  const bool reads = direction == Direction::kToHost, writes = direction == Direction::kToController;
  drive_.health().count(reads, writes, reply.data.size(), request.data.in.size());
}

void Subsystem::record_error(QueueId queue, const abi::Sqe& command, std::uint16_t status_word, const Reply& reply) {
  ErrorEntry entry{};
  entry.sq_id = queue;
  entry.cid = command.cid;
  entry.status = status_word;
  entry.location = reply.location;
  entry.lba = reply.lba;
  entry.nsid = command.nsid;
  entry.opcode = command.opcode;
  drive_.health().add_error([&](std::uint64_t number) {
    entry.count = number;
    return bytes_of(entry);
  });
}

}  // namespace kvdrive::nvme
