// SPDX-License-Identifier: Apache-2.0
// Namespace 1: the KV cache. Append, trim, erase, fork.
#include <algorithm>
#include <bit>
#include <vector>

#include "commands/drive_state.hpp"
#include "commands/table.hpp"
#include "crc32c.hpp"

namespace kvdrive::nvme {
namespace {

std::optional<std::uint64_t> append_bytes(const abi::Sqe& command, const Drive&) {
  const auto append = std::bit_cast<abi::KvAppend>(command);
  return std::uint64_t{append.heads} * append.tokens * append.row_bytes;
}

Reply append(DriveState& drive, const Request& request) {
  const auto command = std::bit_cast<abi::KvAppend>(request.command);
  const std::uint64_t bytes = std::uint64_t{command.heads} * command.tokens * command.row_bytes;
  const bool payload = drive.volume.ftl().keeps_payload();
  std::span<const std::byte> data = request.data.in;
  if (!payload && data.empty()) {
    drive.nothing.resize(std::max<std::size_t>(drive.nothing.size(), bytes));
    data = std::span(drive.nothing).first(bytes);
  }
  if (data.size() != bytes) return {.status = abi::kDataLength};
  if (payload && crc32c(data) != command.crc32c) return {.status = abi::kCrcMismatch};
  std::uint32_t tokens_in_groups = 0;
  const Ns accepted = drive.volume.device().accept_write(data.size(), drive.now);
  drive.volume.ftl().set_time(accepted);
  const auto status = drive.volume.store().append(command, data, tokens_in_groups);
  Reply reply{.status = status, .result = tokens_in_groups, .done = accepted};
  if (status == abi::kSuccess && (command.options & abi::kAppendFua)) reply.done = drive.flush();
  return reply;
}

Reply trim(DriveState& drive, const Request& request) {
  return {.status = drive.volume.store().trim(std::bit_cast<abi::SessionTrim>(request.command))};
}

// Results that wait for their ATTN_FETCH stay available.
Reply erase(DriveState& drive, const Request& request) {
  const auto command = std::bit_cast<abi::SessionTrim>(request.command);
  const std::vector<Family> families = drive.volume.store().families(command.session);
  if (const auto status = drive.volume.store().trim(command); status != abi::kSuccess) return {.status = status};
  Reply reply;
  const Ns durable = drive.durably([&] { reply.result = drive.volume.erase_forgotten(families, command.session); });
  reply.done = std::max(durable, drive.volume.ftl().erases_done());
  return reply;
}

Reply fork(DriveState& drive, const Request& request) {
  return {.status = drive.volume.store().fork(std::bit_cast<abi::SessionFork>(request.command))};
}

constexpr Command kCommands[] = {
    {.opcode = abi::kKvAppend,
     .nsid = abi::kNvm,
     .name = "KV_APPEND",
     .direction = Direction::kToController,
     .length = append_bytes,
     .effects = kChangesContents,
     .handler = append},
    {.opcode = abi::kSessionTrim,
     .nsid = abi::kNvm,
     .name = "SESSION_TRIM",
     .effects = kChangesContents,
     .handler = trim},
    {.opcode = kSessionErase,
     .nsid = abi::kNvm,
     .name = "SESSION_ERASE",
     .effects = kChangesContents,
     .handler = erase},
    {.opcode = abi::kSessionFork,
     .nsid = abi::kNvm,
     .name = "SESSION_FORK",
     .effects = kChangesContents,
     .handler = fork},
};

}  // namespace

std::span<const Command> kv_commands() { return kCommands; }

}  // namespace kvdrive::nvme
