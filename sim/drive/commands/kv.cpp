// SPDX-License-Identifier: Apache-2.0
// Namespace 1: the KV cache. Append, trim, remove, erase, fork.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "commands/drive_state.hpp"
#include "commands/table.hpp"
#include "crc32c.hpp"
#include "kv/fields.hpp"
#include "kv/row_fetch.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::uint32_t kMaxHeads = 256;  // of a layer

using kvdrive::invalid_field;

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
  if (const auto at = invalid_field(command)) return {.status = abi::kInvalidField, .location = *at};
  std::uint32_t tokens_in_groups = 0;
  const Ns accepted = drive.volume.device().accept_write(data.size(), drive.now);
  drive.volume.ftl().set_time(accepted);
  const auto status = drive.volume.store().append(command, data, tokens_in_groups);
  Reply reply{.status = status, .result = tokens_in_groups, .done = accepted};
  if (status == abi::kSuccess && (command.options & abi::kAppendFua)) reply.done = drive.flush();
  return reply;
}

Reply trim(DriveState& drive, const Request& request) {
  const auto command = std::bit_cast<abi::SessionTrim>(request.command);
  if (const auto at = invalid_field(command)) return {.status = abi::kInvalidField, .location = *at};
  return {.status = drive.volume.store().trim(command)};
}

Reply remove_session(DriveState& drive, const Request& request) {
  const auto command = std::bit_cast<SessionRemove>(request.command);
  if (const auto at = invalid_field(command)) return {.status = abi::kInvalidField, .location = *at};
  return {.status = drive.volume.store().remove(command)};
}

// Results that wait for their ATTN_FETCH stay available.
Reply erase(DriveState& drive, const Request& request) {
  const auto command = std::bit_cast<abi::SessionTrim>(request.command);
  if (const auto at = invalid_field(command)) return {.status = abi::kInvalidField, .location = *at};
  const std::vector<Family> families = drive.volume.store().families(command.session);
  if (const auto status = drive.volume.store().trim(command); status != abi::kSuccess) return {.status = status};
  Reply reply;
  const Ns durable = drive.durably([&] { reply.result = drive.volume.erase_dropped(families, command.session); });
  reply.done = std::max(durable, drive.volume.ftl().erases_done());
  return reply;
}

std::uint64_t wanted_bytes(const KvRead& command) {
  return std::uint64_t{command.heads} * command.tokens * command.row_bytes;
}

std::optional<std::uint64_t> read_bytes(const abi::Sqe& command, const Drive&) {
  return wanted_bytes(std::bit_cast<KvRead>(command));
}

std::optional<std::uint16_t> invalid_field(const KvRead& command) {
  const auto zero = [](auto value) { return value == 0; };
  if (command.heads == 0 || command.head + command.heads > kMaxHeads) return offsetof(KvRead, heads);
  if (command.tokens == 0 || std::uint64_t{command.first_token} + command.tokens > abi::kMaxTokens) {
    return offsetof(KvRead, tokens);
  }
  if (command.kind > abi::kValues) return offsetof(KvRead, kind);
  if (!std::ranges::all_of(command.reserved0, zero)) return offsetof(KvRead, reserved0);
  if (!std::ranges::all_of(command.reserved1, zero)) return offsetof(KvRead, reserved1);
  return std::nullopt;
}

// Checks that each head holds the rows. Appends the heads to `found`.
abi::NvmeStatus find_heads(const KvStore& store, const KvRead& command, std::vector<const HeadRows*>& found) {
  if (!store.has_session(command.session)) return abi::kUnknownSession;
  for (std::uint32_t head = command.head; head < command.head + std::uint32_t{command.heads}; ++head) {
    const HeadRows* rows = store.find(command.session, command.layer, head, static_cast<abi::KvKind>(command.kind));
    if (!rows || command.first_token + command.tokens > rows->tokens()) return abi::kTokensMissing;
    if (rows->row_bytes() != command.row_bytes) return abi::kRowMismatch;
    found.push_back(rows);
  }
  return abi::kSuccess;
}

// Rows as they were appended. A group that does not verify fails the command; no byte of it is sent.
Reply read_rows(DriveState& drive, const Request& request) {
  const auto command = std::bit_cast<KvRead>(request.command);
  if (const auto at = invalid_field(command)) return {.status = abi::kInvalidField, .location = *at};
  std::vector<const HeadRows*> heads;
  if (const auto status = find_heads(drive.volume.store(), command, heads); status != abi::kSuccess) {
    return {.status = status};
  }
  const std::uint64_t bytes = wanted_bytes(command);
  if (request.data.room < bytes) return {.status = abi::kDataLength};
  Ftl& ftl = drive.volume.ftl();
  if (!ftl.keeps_payload()) return {.status = abi::kInvalidField};
  Reply reply;
  reply.data.resize(bytes);
  RowFetch fetch;
  std::byte* to = reply.data.data();
  for (const HeadRows* rows : heads) {
    fetch.add(*rows, command.first_token, command.tokens, to);
    to += std::uint64_t{command.tokens} * command.row_bytes;
  }
  NandDevice& device = drive.volume.device();
  const auto size = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, UINT32_MAX));
  const auto found = fetch.run(ftl, drive.now + device.firmware_read(size), Sink::kHost);
  if (!found.whole) return {.status = abi::kUnrecoveredRead, .done = found.done};
  reply.result = crc32c(reply.data);
  reply.done = std::max(found.done, device.to_host(fetch.staged_bytes(), drive.now));
  return reply;
}

Reply fork(DriveState& drive, const Request& request) {
  const auto command = std::bit_cast<abi::SessionFork>(request.command);
  if (const auto at = invalid_field(command)) return {.status = abi::kInvalidField, .location = *at};
  return {.status = drive.volume.store().fork(command)};
}

constexpr StatusField kAppendFields[] = {
    {abi::kUnknownSession, offsetof(abi::KvAppend, session)}, {abi::kOutOfSequence, offsetof(abi::KvAppend, sequence)},
    {abi::kTokenGap, offsetof(abi::KvAppend, first_token)},   {abi::kRowMismatch, offsetof(abi::KvAppend, row_bytes)},
    {abi::kInvalidField, offsetof(abi::KvAppend, options)},   {abi::kCrcMismatch, offsetof(abi::KvAppend, crc32c)},
};
constexpr StatusField kReadFields[] = {
    {abi::kUnknownSession, offsetof(KvRead, session)},
    {abi::kTokensMissing, offsetof(KvRead, tokens)},
    {abi::kRowMismatch, offsetof(KvRead, row_bytes)},
};
constexpr StatusField kTrimFields[] = {{abi::kUnknownSession, offsetof(abi::SessionTrim, session)}};
constexpr StatusField kRemoveFields[] = {
    {abi::kUnknownSession, offsetof(SessionRemove, session)},
    {abi::kInvalidField, offsetof(SessionRemove, first_token)},
    {abi::kTokenGap, offsetof(SessionRemove, before)},
    {abi::kTokensMissing, offsetof(SessionRemove, tokens)},
};
constexpr StatusField kForkFields[] = {
    {abi::kUnknownSession, offsetof(abi::SessionFork, session)},
    {abi::kSessionExists, offsetof(abi::SessionFork, target)},
    {abi::kInvalidField, offsetof(abi::SessionFork, tokens)},  // no token would be left
};

constexpr Command kKvCommands[] = {
    {.opcode = abi::kKvAppend,
     .nsid = abi::kNvm,
     .name = "KV_APPEND",
     .direction = Direction::kToController,
     .length = append_bytes,
     .effects = kChangesContents,
     .handler = append,
     .fields = kAppendFields},
    {.opcode = abi::kKvRead,
     .nsid = abi::kNvm,
     .name = "KV_READ",
     .direction = Direction::kToHost,
     .length = read_bytes,
     .handler = read_rows,
     .fields = kReadFields},
    {.opcode = abi::kSessionTrim,
     .nsid = abi::kNvm,
     .name = "SESSION_TRIM",
     .effects = kChangesContents,
     .handler = trim,
     .fields = kTrimFields},
    {.opcode = abi::kSessionRemove,
     .nsid = abi::kNvm,
     .name = "SESSION_REMOVE",
     .effects = kChangesContents,
     .handler = remove_session,
     .fields = kRemoveFields},
    {.opcode = abi::kSessionErase,
     .nsid = abi::kNvm,
     .name = "SESSION_ERASE",
     .effects = kChangesContents,
     .handler = erase,
     .fields = kTrimFields},
    {.opcode = abi::kSessionFork,
     .nsid = abi::kNvm,
     .name = "SESSION_FORK",
     .effects = kChangesContents,
     .handler = fork,
     .fields = kForkFields},
};

}  // namespace

std::span<const Command> kv_commands() { return kKvCommands; }

}  // namespace kvdrive::nvme
