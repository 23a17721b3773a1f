// SPDX-License-Identifier: Apache-2.0
#include "drive.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#include "crc32c.hpp"

namespace kvdrive {
namespace {

constexpr std::uint8_t kFuseMask = 0x3;

std::uint32_t pages_of(std::uint64_t capacity_bytes) {
  const std::uint64_t pages = capacity_bytes / abi::kPageBytes;
  if (pages < 2 || pages > UINT32_MAX) {
    throw std::runtime_error("the drive's capacity must be between two pages and 16 TiB");
  }
  return static_cast<std::uint32_t>(pages);
}

abi::Namespace namespace_of(std::uint8_t opcode) {
  return opcode == abi::kAttnSubmit || opcode == abi::kAttnFetch ? abi::kCp : abi::kNvm;
}

bool known(std::uint8_t opcode) {
  return opcode == abi::kKvAppend || opcode == abi::kSessionTrim || opcode == abi::kAttnSubmit ||
         opcode == abi::kAttnFetch;
}

// A damaged payload can be sent again and a full ticket table empties; everything else fails again.
bool worth_retrying(abi::NvmeStatus status) { return status == abi::kCrcMismatch || status == abi::kTicketsExhausted; }

std::uint16_t status_word(abi::NvmeStatus status) {
  const std::uint32_t word = status << abi::kCqeStatusShift;
  const bool final = status != abi::kSuccess && !worth_retrying(status);
  return static_cast<std::uint16_t>(word | (final ? abi::kCqeDoNotRetry : 0));
}

}  // namespace

Drive::Drive(const std::filesystem::path& path, std::unique_ptr<Engine> engine, std::uint64_t capacity_bytes)
    : file_(path, pages_of(capacity_bytes)), engine_(std::move(engine)) {}

Drive::Completion Drive::submit(SqeView sqe, std::span<const std::byte> data) {
  const std::lock_guard lock(mutex_);
  abi::Sqe command;
  std::memcpy(&command, sqe.data(), sizeof command);
  Reply reply;
  try {
    reply = execute(command, data);
  } catch (const std::exception&) {  // the backing file or the memory failed: the command changed nothing
    reply = {.status = abi::kInternalError};
  }
  ++counters_.commands;
  counters_.failed_commands += reply.status != abi::kSuccess;
  counters_.host_bytes_in += sqe.size() + data.size();
  counters_.host_bytes_out += abi::kCqeBytes + reply.data.size();

  const abi::Cqe cqe{
      .result = reply.result, .sq_head = 0, .sq_id = 0, .cid = command.cid, .status = status_word(reply.status)};
  Completion completion{{}, std::move(reply.data)};
  std::memcpy(completion.cqe.data(), &cqe, sizeof cqe);
  return completion;
}

DriveStats Drive::stats() const {
  const std::lock_guard lock(mutex_);
  DriveStats stats = counters_;
  stats.pages_written = pages_.pages_written();
  stats.pages_read = pages_.pages_read();
  stats.tail_bytes_read = attention_.tail_bytes_read();
  stats.attention_jobs = attention_.jobs();
  return stats;
}

Drive::Reply Drive::execute(const abi::Sqe& command, std::span<const std::byte> data) {
  if (!known(command.opcode)) return {.status = abi::kInvalidOpcode};
  if (command.flags & kFuseMask) return {.status = abi::kInvalidField};
  if (command.nsid != namespace_of(command.opcode)) return {.status = abi::kInvalidNamespace};
  const bool host_to_controller = command.opcode & 1;
  if (!host_to_controller && !data.empty()) return {.status = abi::kDataLength};
  switch (command.opcode) {
    case abi::kKvAppend:
      return append(std::bit_cast<abi::KvAppend>(command), data);
    case abi::kAttnSubmit:
      return submit_attention(std::bit_cast<abi::AttnSubmit>(command), data);
    case abi::kAttnFetch:
      return fetch_attention(std::bit_cast<abi::AttnFetch>(command));
    default:
      return {.status = store_.trim(std::bit_cast<abi::SessionTrim>(command))};
  }
}

Drive::Reply Drive::append(const abi::KvAppend& command, std::span<const std::byte> data) {
  if (data.size() != std::uint64_t{command.heads} * command.tokens * command.row_bytes) {
    return {.status = abi::kDataLength};
  }
  if (crc32c(data) != command.crc32c) return {.status = abi::kCrcMismatch};
  std::uint32_t tokens_in_pages = 0;
  const auto status = store_.append(command, data, tokens_in_pages);
  return {.status = status, .result = tokens_in_pages};
}

Drive::Reply Drive::submit_attention(const abi::AttnSubmit& command, std::span<const std::byte> data) {
  if (const auto status = attention_.check(command, data.size()); status != abi::kSuccess) return {.status = status};
  if (crc32c(data) != command.crc32c) return {.status = abi::kCrcMismatch};
  if (tickets_.size() >= kMaxTickets) return {.status = abi::kTicketsExhausted};
  AttentionOutcome outcome = attention_.run(command, data);
  do {
    ++last_ticket_;
  } while (last_ticket_ == 0 || tickets_.contains(last_ticket_));
  tickets_.emplace(last_ticket_, std::move(outcome));
  return {.result = last_ticket_};
}

Drive::Reply Drive::fetch_attention(const abi::AttnFetch& command) {
  const auto zero = [](std::uint32_t value) { return value == 0; };
  if (!std::ranges::all_of(command.reserved0, zero) || !std::ranges::all_of(command.reserved1, zero)) {
    return {.status = abi::kInvalidField};
  }
  const auto found = tickets_.find(command.ticket);
  if (found == tickets_.end()) return {.status = abi::kUnknownTicket};
  AttentionOutcome& outcome = found->second;
  if (outcome.status == abi::kSuccess && command.data_bytes != outcome.data.size()) {
    return {.status = abi::kDataLength};  // the ticket stays
  }
  Reply reply{outcome.status, outcome.result, std::move(outcome.data)};
  tickets_.erase(found);
  return reply;
}

}  // namespace kvdrive
