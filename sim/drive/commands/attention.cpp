// SPDX-License-Identifier: Apache-2.0
// Namespace 3: attention over the KV cache. ATTN_SUBMIT computes and keeps the result, ATTN_FETCH returns it once, as
// it does for FFN_SUBMIT.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "attention/head.hpp"
#include "commands/drive_state.hpp"
#include "commands/engine_job.hpp"
#include "commands/programs.hpp"
#include "commands/table.hpp"
#include "crc32c.hpp"
#include "drive.hpp"

namespace kvdrive::nvme {
namespace {

std::optional<std::uint64_t> submit_bytes(const abi::Sqe& command, const Drive& drive) {
  return drive.payload_bytes(std::bit_cast<abi::AttnSubmit>(command));
}

std::optional<std::uint64_t> fetch_bytes(const abi::Sqe& command, const Drive&) {
  return std::bit_cast<abi::AttnFetch>(command).data_bytes;
}

Reply submit(DriveState& drive, const Request& request) {
  const auto command = std::bit_cast<abi::AttnSubmit>(request.command);
  const std::span<const std::byte> data = request.data.in;
  const std::uint32_t program = program_of(command.mode);
  if (program < Programs::kCount && drive.inactive_programs >> program & 1) return {.status = kScProgramNotActivated};
  if (const auto at = invalid_field(command)) return {.status = abi::kInvalidField, .location = *at};
  if (const auto status = drive.attention.check(command, data.size()); status != abi::kSuccess) {
    return {.status = status};
  }
  if (crc32c(data) != command.crc32c) return {.status = abi::kCrcMismatch};
  return run_and_keep(drive, request, [&](Ns arrival) { return drive.attention.run(command, data, arrival); });
}

Reply fetch(DriveState& drive, const Request& request) {
  const auto command = std::bit_cast<abi::AttnFetch>(request.command);
  const auto zero = [](std::uint32_t value) { return value == 0; };
  if (!std::ranges::all_of(command.reserved0, zero)) {
    return {.status = abi::kInvalidField, .location = offsetof(abi::AttnFetch, reserved0)};
  }
  if (!std::ranges::all_of(command.reserved1, zero)) {
    return {.status = abi::kInvalidField, .location = offsetof(abi::AttnFetch, reserved1)};
  }
  AttentionOutcome* const found = drive.tickets.find(command.ticket);
  if (found == nullptr) return {.status = abi::kUnknownTicket};
  AttentionOutcome& outcome = *found;
  const std::size_t bytes = outcome.data.size();
  if (outcome.status == abi::kSuccess && (command.data_bytes != bytes || request.data.room < bytes)) {
    return {.status = abi::kDataLength};  // the ticket stays valid
  }
  const Ns sent = drive.volume.device().to_host(bytes, drive.now);
  Reply reply{.status = outcome.status, .result = outcome.result, .data = std::move(outcome.data), .done = sent};
  drive.tickets.erase(command.ticket);
  return reply;
}

constexpr StatusField kSubmitFields[] = {
    {kScProgramNotActivated, offsetof(abi::AttnSubmit, mode)},
    {abi::kUnknownSession, offsetof(abi::AttnSubmit, session)},
    {abi::kInvalidField, offsetof(abi::AttnSubmit, mode)},  // SparF over rows in 8 or 4 bits
    {abi::kTokensMissing, offsetof(abi::AttnSubmit, tokens)},
    {abi::kRowMismatch, offsetof(abi::AttnSubmit, head)},
    {abi::kCrcMismatch, offsetof(abi::AttnSubmit, crc32c)},
};
constexpr StatusField kFetchFields[] = {
    {abi::kUnknownTicket, offsetof(abi::AttnFetch, ticket)},
    {abi::kDataLength, offsetof(abi::AttnFetch, data_bytes)},
};

constexpr Command kCommands[] = {
    {.opcode = abi::kAttnSubmit,
     .nsid = abi::kCp,
     .name = "ATTN_SUBMIT",
     .direction = Direction::kToController,
     .length = submit_bytes,
     .handler = submit,
     .fields = kSubmitFields},
    {.opcode = abi::kAttnFetch,
     .nsid = abi::kCp,
     .name = "ATTN_FETCH",
     .direction = Direction::kToHost,
     .length = fetch_bytes,
     .handler = fetch,
     .fields = kFetchFields},
};

}  // namespace

std::span<const Command> attention_commands() { return kCommands; }

}  // namespace kvdrive::nvme
