// SPDX-License-Identifier: Apache-2.0
// Namespace 3: attention over the KV cache. ATTN_SUBMIT computes and keeps the result, ATTN_SUBMIT_ROWS does so for
// several queries. ATTN_FETCH returns the result once, as it does for FFN_SUBMIT.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "attention/head.hpp"
#include "commands/drive_state.hpp"
#include "commands/engine_job.hpp"
#include "commands/programs.hpp"
#include "commands/table.hpp"
#include "crc32c.hpp"
#include "drive.hpp"

namespace kvdrive::nvme {
namespace {

std::optional<std::uint64_t> submit_query_bytes(const abi::Sqe& command, const Drive& drive) {
  return drive.payload_bytes(std::bit_cast<abi::AttnSubmit>(command));
}

std::optional<std::uint64_t> fetch_bytes(const abi::Sqe& command, const Drive&) {
  return std::bit_cast<abi::AttnFetch>(command).data_bytes;
}

// Refuses a query; nothing if it can run. A status without a location is located by kSubmitFields.
std::optional<Reply> refusal(DriveState& drive, const abi::AttnSubmit& command, std::span<const std::byte> data) {
  const std::uint32_t program = program_of(command.mode);
  if (program < Programs::kCount && drive.inactive_programs >> program & 1) {
    return Reply{.status = kScProgramNotActivated};
  }
  if (const auto at = invalid_field(command)) return Reply{.status = abi::kInvalidField, .location = *at};
  if (const auto status = drive.attention.check(command, data.size()); status != abi::kSuccess) {
    return Reply{.status = status};
  }
  return std::nullopt;
}

Reply submit_query(DriveState& drive, const Request& request) {
  const auto command = std::bit_cast<abi::AttnSubmit>(request.command);
  const std::span<const std::byte> data = request.data.in;
  if (auto refused = refusal(drive, command, data)) return std::move(*refused);
  if (crc32c(data) != command.crc32c) return {.status = abi::kCrcMismatch};
  return run_and_keep(drive, request, [&](Ns arrival) { return drive.attention.run(command, data, arrival); });
}

// ---- several rows ----

// One row of ATTN_SUBMIT_ROWS: a query, and its share of the command's data.
struct Row {
  AttnRow fields;
  std::span<const std::byte> data;
};

bool all_zero(std::span<const std::uint32_t> words) {
  return std::ranges::all_of(words, [](std::uint32_t word) { return word == 0; });
}

// Cuts the data of a command into its rows; nothing if the rows and their data do not fill it exactly.
std::optional<std::vector<Row>> cut(std::span<const std::byte> data, std::uint32_t count) {
  const std::uint64_t entries = std::uint64_t{count} * sizeof(AttnRow);
  if (data.size() < entries) return std::nullopt;
  std::span<const std::byte> left = data.subspan(entries);
  std::vector<Row> rows;
  rows.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto fields = read_as<AttnRow>(data, i * sizeof(AttnRow));
    if (fields.data_bytes > left.size()) return std::nullopt;
    rows.push_back({fields, left.first(fields.data_bytes)});
    left = left.subspan(fields.data_bytes);
  }
  if (!left.empty()) return std::nullopt;
  return rows;
}

// The fields of a row lie where those of the single command lie. What a row does not have is 0 there.
static_assert(sizeof(AttnRow) == sizeof(abi::AttnSubmit) &&
              offsetof(AttnRow, session) == offsetof(abi::AttnSubmit, session) &&
              offsetof(AttnRow, layer) == offsetof(abi::AttnSubmit, layer) &&
              offsetof(AttnRow, tokens) == offsetof(abi::AttnSubmit, tokens) &&
              offsetof(AttnRow, reserved2) == offsetof(abi::AttnSubmit, reserved0) &&
              offsetof(AttnRow, inline_tokens) == offsetof(abi::AttnSubmit, inline_tokens) &&
              offsetof(AttnRow, scale_log2e) == offsetof(abi::AttnSubmit, scale_log2e));

// The row as a command of its own.
abi::AttnSubmit single(const Row& row) {
  AttnRow fields = row.fields;
  fields.data_bytes = 0;
  return std::bit_cast<abi::AttnSubmit>(fields);
}

AttentionOutcome run_row(DriveState& drive, const Row& row, const RowPlace& place, Ns ready) {
  const AttnRow& fields = row.fields;
  if (!all_zero(fields.reserved0) || !all_zero(fields.reserved1) || fields.reserved3 != 0) {
    return {.status = abi::kInvalidField, .data = {}, .done = ready};
  }
  const abi::AttnSubmit command = single(row);
  if (const auto refused = refusal(drive, command, row.data)) {
    return {.status = static_cast<abi::NvmeStatus>(refused->status), .data = {}, .done = ready};
  }
  drive.volume.ftl().set_time(ready);
  drive.volume.device().advance(ready);
  return drive.attention.run(command, row.data, ready, place);
}

// In device time a row begins when the row before it has ended.
AttentionOutcome run_rows(DriveState& drive, std::span<const Row> rows, Ns arrival) {
  AttentionOutcome all{.data = {}, .rows = static_cast<std::uint32_t>(rows.size()), .done = arrival};
  std::vector<AttnRowResult> results;
  std::vector<std::byte> outputs;
  std::optional<abi::AttnSubmit> next;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    next = i + 1 < rows.size() ? std::optional(single(rows[i + 1])) : std::nullopt;
    const AttentionOutcome one = run_row(drive, rows[i], {.first = i == 0, .next = next ? &*next : nullptr}, all.done);
    results.push_back({.status = one.status,
                       .engine_status = static_cast<std::uint32_t>(one.result),
                       .data_bytes = static_cast<std::uint32_t>(one.data.size()),
                       .reserved = 0});
    outputs.insert(outputs.end(), one.data.begin(), one.data.end());
    all.done = std::max(all.done, one.done);
    all.lost |= one.status == abi::kUnrecoveredRead;
  }
  const auto head = std::as_bytes(std::span(results));
  all.data.reserve(head.size() + outputs.size());
  all.data.assign(head.begin(), head.end());
  all.data.insert(all.data.end(), outputs.begin(), outputs.end());
  return all;
}

std::optional<std::uint64_t> rows_bytes(const abi::Sqe& command, const Drive&) {
  return std::bit_cast<AttnRows>(command).data_bytes;
}

Reply submit_rows(DriveState& drive, const Request& request) {
  const auto command = std::bit_cast<AttnRows>(request.command);
  const std::span<const std::byte> data = request.data.in;
  const auto wrong = [](std::uint16_t at) { return Reply{.status = abi::kInvalidField, .location = at}; };
  if (!all_zero(command.reserved0)) return wrong(offsetof(AttnRows, reserved0));
  if (!all_zero(command.reserved1)) return wrong(offsetof(AttnRows, reserved1));
  if (command.rows == 0 || command.rows > kMaxAttnRows) return wrong(offsetof(AttnRows, rows));
  if (data.size() != command.data_bytes) return {.status = abi::kDataLength};
  const auto rows = cut(data, command.rows);
  if (!rows) return wrong(offsetof(AttnRows, data_bytes));
  if (crc32c(data) != command.crc32c) return {.status = abi::kCrcMismatch};
  return run_and_keep(drive, request, [&](Ns arrival) { return run_rows(drive, *rows, arrival); }, command.rows);
}

Reply fetch_results(DriveState& drive, const Request& request) {
  const auto command = std::bit_cast<abi::AttnFetch>(request.command);
  if (!all_zero(command.reserved0)) {
    return {.status = abi::kInvalidField, .location = offsetof(abi::AttnFetch, reserved0)};
  }
  if (!all_zero(command.reserved1)) {
    return {.status = abi::kInvalidField, .location = offsetof(abi::AttnFetch, reserved1)};
  }
  AttentionOutcome* const found = drive.tickets.find(command.ticket);
  if (found == nullptr) return {.status = abi::kUnknownTicket};
  AttentionOutcome& outcome = *found;
  const std::size_t bytes = outcome.data.size();
  // The size of several rows' results depends on how many failed, so the host's buffer may be larger.
  const bool fits = outcome.rows > 0 ? command.data_bytes >= bytes : command.data_bytes == bytes;
  if (outcome.status == abi::kSuccess && (!fits || request.data.room < bytes)) {
    return {.status = abi::kDataLength};  // the ticket stays valid
  }
  const Ns sent = drive.volume.device().to_host(bytes, drive.now);
  Reply reply{.status = outcome.status,
              .result = outcome.result,
              .data = std::move(outcome.data),
              .done = sent,
              .lost = outcome.lost};
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
constexpr StatusField kRowsFields[] = {
    {abi::kDataLength, offsetof(AttnRows, data_bytes)},
    {abi::kCrcMismatch, offsetof(AttnRows, crc32c)},
};
constexpr StatusField kFetchFields[] = {
    {abi::kUnknownTicket, offsetof(abi::AttnFetch, ticket)},
    {abi::kDataLength, offsetof(abi::AttnFetch, data_bytes)},
};

constexpr Command kAttentionCommands[] = {
    {.opcode = abi::kAttnSubmit,
     .nsid = abi::kCp,
     .name = "ATTN_SUBMIT",
     .direction = Direction::kToController,
     .length = submit_query_bytes,
     .handler = submit_query,
     .fields = kSubmitFields},
    {.opcode = abi::kAttnSubmitRows,
     .nsid = abi::kCp,
     .name = "ATTN_SUBMIT_ROWS",
     .direction = Direction::kToController,
     .length = rows_bytes,
     .handler = submit_rows,
     .fields = kRowsFields},
    {.opcode = abi::kAttnFetch,
     .nsid = abi::kCp,
     .name = "ATTN_FETCH",
     .direction = Direction::kToHost,
     .length = fetch_bytes,
     .handler = fetch_results,
     .fields = kFetchFields},
};

}  // namespace

std::span<const Command> attention_commands() { return kAttentionCommands; }

}  // namespace kvdrive::nvme
