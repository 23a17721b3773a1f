// SPDX-License-Identifier: Apache-2.0
#include "commands/subsystem.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

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

// An asynchronous event of type SMART: the reliability suffers; and the bit of the feature that asks for it.
constexpr std::uint32_t kReliabilityEvent = 0x1 | kLogSmart << 16, kReliabilityWarning = 0x4;

bool stores(const abi::Sqe& command) {
  return command.nsid == abi::kNvm && command.opcode != kNvmFlush && command.opcode != kNvmRead;
}

bool changes_memory(const abi::Sqe& command) { return command.nsid == kNsidMemory && command.opcode != kMemoryRead; }

}  // namespace

Subsystem::Subsystem(Drive& drive, SubsystemOptions options)
    : drive_(drive), options_(checked(std::move(options))), memory_(options_.slm_bytes) {}

std::uint16_t Subsystem::attach(Controller* controller) {
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
  const std::lock_guard lock(controllers_mutex_);
  controllers_.at(id - 1u) = nullptr;
}

void Subsystem::broadcast(std::uint32_t event, std::uint32_t enabled_by) {
  const std::lock_guard lock(controllers_mutex_);
  for (Controller* controller : controllers_) {
    if (controller) controller->raise(event, enabled_by);
  }
}

Transfer Subsystem::transfer(const abi::Sqe& command) const {
  const auto direction = static_cast<Direction>(command.opcode & 3);
  if (direction == Direction::kNone) return {};
  const Transfer unknown{direction, std::nullopt};
  switch (command.nsid << 8 | command.opcode) {
    case abi::kNvm << 8 | kNvmWrite:
    case abi::kNvm << 8 | kNvmRead:
      return {direction, ((command.cdw12 & 0xffff) + 1) * std::uint64_t{kLbaBytes}};
    case abi::kNvm << 8 | kNvmDatasetManagement:
      return {direction, ((command.cdw10 & 0xff) + 1) * sizeof(DatasetRange)};
    case abi::kNvm << 8 | abi::kKvAppend: {
      const auto append = std::bit_cast<abi::KvAppend>(command);
      return {direction, std::uint64_t{append.heads} * append.tokens * append.row_bytes};
    }
    case abi::kCp << 8 | abi::kAttnSubmit:
      return {direction, drive_.payload_bytes(std::bit_cast<abi::AttnSubmit>(command))};
    case abi::kCp << 8 | abi::kAttnFetch:
      return {direction, std::bit_cast<abi::AttnFetch>(command).data_bytes};
    case abi::kCp << 8 | kExecuteProgram:
      return {direction, 0};
    case kNsidMemory << 8 | kMemoryRead:
    case kNsidMemory << 8 | kMemoryWrite:
      return {direction, command.cdw12};
    default:
      return unknown;
  }
}

Reply Subsystem::execute(const abi::Sqe& command, const DataBuffer& data, bool write_cache, std::uint32_t queue) {
  Reply reply;
  if (command.flags & 0x3) {  // fused
    reply.status = abi::kInvalidField;
  } else if (command.nsid == kNsidMemory) {
    reply = memory_.execute(command, data.in, data.room);
  } else if (command.nsid == abi::kCp && command.opcode == kExecuteProgram) {
    reply = programs_.execute(command, queue);
  } else {
    reply = execute_kv(command, data, write_cache, queue);
  }
  count(command, data, reply);
  if (reply.status == abi::kSuccess && (stores(command) || changes_memory(command))) sanitizer_.stored();
  if (reply.status == abi::kUnrecoveredRead) broadcast(kReliabilityEvent, kReliabilityWarning);
  return reply;
}

Reply Subsystem::execute_kv(const abi::Sqe& command, const DataBuffer& data, bool write_cache, std::uint32_t queue) {
  if (command.opcode == abi::kAttnSubmit && command.nsid == abi::kCp) {
    const Status status = programs_.may_run(std::bit_cast<abi::AttnSubmit>(command).mode);
    if (status != abi::kSuccess) return {.status = status};
  }
  abi::Sqe addressed = command;
  if (command.opcode == abi::kFlush && command.nsid == kNsidAll) addressed.nsid = abi::kNvm;
  Drive::Reply reply = drive_.execute(addressed, data.in, data.room, queue);
  if (!write_cache && reply.status == abi::kSuccess && stores(command)) {
    abi::Sqe flush{};
    flush.opcode = abi::kFlush;
    flush.nsid = abi::kNvm;
    if (drive_.execute(flush, {}, 0, queue).status != abi::kSuccess) reply.status = abi::kInternalError;
  }
  return {reply.status, reply.result, std::move(reply.data)};
}

// CDW10: LBA format in bits 3:0, protection in 7:5, secure erase in 11:9: only none.
Reply Subsystem::format(const abi::Sqe& command) {
  if (command.nsid != abi::kNvm && command.nsid != kNsidAll) return {.status = abi::kInvalidNamespace};
  if (command.cdw10 & 0xf || command.cdw10 >> 5 & 0x7) return {.status = kScBadFormat};
  if (command.cdw10 >> 9 & 0x7) return {.status = abi::kInvalidField};  // flash is erased when it is needed again
  return {.status = drive_.format()};
}

void Subsystem::count(const abi::Sqe& command, const DataBuffer& data, const Reply& reply) {
  const bool to_controller = command.opcode & 1;
  const bool to_host = (command.opcode & 3) == 2;
  reads_ += to_host;
  writes_ += to_controller;
  bytes_written_ += data.in.size();
  bytes_read_ += reply.data.size();
}

HostCounters Subsystem::host_counters() const { return {reads_, writes_, bytes_read_, bytes_written_}; }

void Subsystem::record_error(QueueId queue, const abi::Sqe& command, std::uint16_t status_word) {
  const std::lock_guard lock(log_mutex_);
  ErrorEntry& entry = errors_[error_count_ % errors_.size()];
  entry = {};
  entry.count = ++error_count_;
  entry.sq_id = queue;
  entry.cid = command.cid;
  entry.status = status_word;
  entry.location = 0xffff;  // no single field is at fault
  entry.nsid = command.nsid;
  entry.opcode = command.opcode;
}

std::vector<ErrorEntry> Subsystem::errors(std::size_t most) const {
  const std::lock_guard lock(log_mutex_);
  const std::uint64_t count = std::min<std::uint64_t>({most, error_count_, errors_.size()});
  std::vector<ErrorEntry> newest;
  newest.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) newest.push_back(errors_[(error_count_ - 1 - i) % errors_.size()]);
  return newest;
}

}  // namespace kvdrive::nvme
