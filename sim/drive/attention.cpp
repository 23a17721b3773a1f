// SPDX-License-Identifier: Apache-2.0
#include "attention.hpp"

#include <algorithm>
#include <cstring>

namespace kvdrive {
namespace {

constexpr std::uint64_t whole_beats(std::uint64_t bytes) {
  return (bytes + abi::kBeatBytes - 1) / abi::kBeatBytes * abi::kBeatBytes;
}

std::uint64_t query_bytes(const abi::AttnSubmit& command, std::uint32_t row_bytes) {
  return std::uint64_t{command.group} * row_bytes;
}

std::uint64_t valid_bytes(const abi::AttnSubmit& command) {
  return command.has_valid ? whole_beats((std::uint64_t{command.tokens} + 7) / 8) : 0;
}

// The descriptor of an EXACT job with its arrays one behind the other. `bytes` is the size of the memory it needs.
struct Layout {
  Layout(const abi::AttnSubmit& command, std::uint32_t row_bytes) {
    job.version = abi::kAbiVersion;
    job.mode = command.mode;
    job.group = command.group;
    job.head_dim = static_cast<std::uint16_t>(row_bytes / 2);
    job.tokens = command.tokens;
    job.scale_log2e = command.scale_log2e;
    job.q = place(query_bytes(command, row_bytes));
    job.k = place(std::uint64_t{command.tokens} * row_bytes);
    job.v = place(std::uint64_t{command.tokens} * row_bytes);
    if (command.has_valid) job.valid = place(valid_bytes(command));
    job.out = place(query_bytes(command, row_bytes));
    job.result = place(sizeof(abi::AttentionResult));
  }

  abi::AttentionJob job{};
  std::uint64_t bytes = sizeof(abi::AttentionJob);

 private:
  std::uint64_t place(std::uint64_t size) {
    const std::uint64_t address = bytes;
    bytes += whole_beats(size);
    return address;
  }
};

abi::NvmeStatus status_of(std::uint32_t engine_status) {
  if (engine_status == 0) return abi::kSuccess;
  if (engine_status == abi::kNonFinite) return abi::kValueNotFinite;
  if (engine_status == abi::kEmpty) return abi::kNoValidToken;
  return abi::kJobRefused;
}

}  // namespace

abi::NvmeStatus AttentionUnit::check(const abi::AttnSubmit& command, std::size_t data_bytes) const {
  if (command.heads == 0 || command.head + command.heads > 256 || command.tokens == 0 ||
      command.tokens > abi::kMaxTokens || command.mode != abi::kExact || command.has_valid > 1 ||
      command.reserved0 != 0 || command.reserved1[0] != 0 || command.reserved1[1] != 0 ||
      std::ranges::find(abi::kGroupSizes, command.group) == std::end(abi::kGroupSizes)) {
    return abi::kInvalidField;
  }
  if (!store_.has_session(command.session)) return abi::kUnknownSession;
  std::uint32_t row_bytes = 0;
  for (std::uint32_t head = command.head; head < command.head + std::uint32_t{command.heads}; ++head) {
    for (const auto kind : {abi::kKeys, abi::kValues}) {
      const Stream* stream = store_.find(command.session, command.layer, head, kind);
      if (!stream || stream->tokens() < command.tokens) return abi::kTokensMissing;
      if (row_bytes == 0) row_bytes = stream->row_bytes();
      if (stream->row_bytes() != row_bytes) return abi::kRowMismatch;
    }
  }
  const std::uint64_t expected = command.heads * query_bytes(command, row_bytes) + valid_bytes(command);
  return data_bytes == expected ? abi::kSuccess : abi::kDataLength;
}

AttentionOutcome AttentionUnit::run(const abi::AttnSubmit& command, std::span<const std::byte> data) {
  const Stream* first = store_.find(command.session, command.layer, command.head, abi::kKeys);
  const std::size_t out_bytes = query_bytes(command, first->row_bytes());
  const std::size_t record_bytes = sizeof(abi::AttentionResult);
  const auto valid = data.subspan(command.heads * out_bytes);
  AttentionOutcome outcome;
  outcome.data.resize(command.heads * (record_bytes + out_bytes));
  const auto records = std::span(outcome.data).first(command.heads * record_bytes);
  const auto outputs = std::span(outcome.data).subspan(records.size());
  for (std::size_t i = 0; i < command.heads; ++i) {
    std::uint32_t engine_status = 0;
    outcome.status = run_head(
        command, static_cast<std::uint32_t>(command.head + i), data.subspan(i * out_bytes, out_bytes), valid,
        records.subspan(i * record_bytes, record_bytes), outputs.subspan(i * out_bytes, out_bytes), engine_status);
    if (outcome.status != abi::kSuccess) {
      outcome.result = engine_status;
      outcome.data.clear();
      break;
    }
  }
  return outcome;
}

abi::NvmeStatus AttentionUnit::run_head(const abi::AttnSubmit& command, std::uint32_t head,
                                        std::span<const std::byte> q, std::span<const std::byte> valid,
                                        std::span<std::byte> record, std::span<std::byte> out,
                                        std::uint32_t& engine_status) {
  const Stream& k = *store_.find(command.session, command.layer, head, abi::kKeys);
  const Stream& v = *store_.find(command.session, command.layer, head, abi::kValues);
  const Layout layout(command, k.row_bytes());
  memory_.resize(std::max<std::size_t>(memory_.size(), layout.bytes / abi::kBeatBytes));
  std::byte* memory = memory_.front().bytes;

  std::memcpy(memory, &layout.job, sizeof layout.job);
  std::memcpy(memory + layout.job.q, q.data(), q.size());
  if (command.has_valid) std::memcpy(memory + layout.job.valid, valid.data(), valid.size());
  const bool whole =
      k.read(pages_, command.tokens, memory + layout.job.k) && v.read(pages_, command.tokens, memory + layout.job.v);
  if (!whole) return abi::kUnrecoveredRead;
  tail_bytes_read_ += k.tail_bytes(command.tokens) + v.tail_bytes(command.tokens);

  ++jobs_;
  engine_status = engine_.attention({memory, layout.bytes}, 0);
  std::memcpy(record.data(), memory + layout.job.result, record.size());
  std::memcpy(out.data(), memory + layout.job.out, out.size());
  return status_of(engine_status);
}

}  // namespace kvdrive
