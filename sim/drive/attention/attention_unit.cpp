// SPDX-License-Identifier: Apache-2.0
#include "attention/attention_unit.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "attention/copied_pages.hpp"
#include "attention/head.hpp"
#include "attention/mapped_pages.hpp"
#include "attention/queued_run.hpp"
#include "attention/streamed_pages.hpp"

namespace kvdrive {
namespace {

constexpr std::uint32_t kTokensForThreads = 512;  // to call threads for fewer tokens takes longer than to attend

// A drive without contents computes nothing, so MappedPages, which copy nothing, are enough for it.
std::unique_ptr<PageSource> make_source(RunContext& context, std::span<const Head> heads) {
  if (context.engine.reads_pages() && context.ftl.direct() != nullptr) {
    return std::make_unique<StreamedPages>(context, heads);
  }
  if (context.engine.reads_pages() || !context.ftl.keeps_payload()) {
    return std::make_unique<MappedPages>(context, heads);
  }
  return std::make_unique<CopiedPages>(context, heads);
}

}  // namespace

abi::NvmeStatus AttentionUnit::check(const abi::AttnSubmit& command, std::size_t data_bytes) const {
  if (!store_.has_session(command.session)) return abi::kUnknownSession;
  const HeadRows* first = nullptr;
  for (std::uint32_t head = command.head; head < command.head + std::uint32_t{command.heads}; ++head) {
    for (const auto kind : {abi::kKeys, abi::kValues}) {
      const HeadRows* rows = store_.find(command.session, command.layer, head, kind);
      if (!rows || rows->tokens() < command.tokens) return abi::kTokensMissing;
      if (first == nullptr) first = rows;
      if (rows->row_bytes() != first->row_bytes() || rows->format() != first->format()) return abi::kRowMismatch;
    }
  }
  return data_bytes == payload_bytes(command) ? abi::kSuccess : abi::kDataLength;
}

std::optional<std::uint64_t> AttentionUnit::payload_bytes(const abi::AttnSubmit& command) const {
  const HeadRows* rows = store_.find(command.session, command.layer, command.head, abi::kKeys);
  if (!rows) return std::nullopt;
  return kvdrive::payload_bytes(command, rows->half_bytes());
}

AttentionOutcome AttentionUnit::run(const abi::AttnSubmit& command, std::span<const std::byte> data, Ns arrival,
                                    const RowPlace& place) {
  if (command.tokens < kTokensForThreads) return run_now(command, data, arrival, place);
  AttentionOutcome outcome;
  engine_.with_threads([&] { outcome = run_now(command, data, arrival, place); });
  return outcome;
}

AttentionOutcome AttentionUnit::run_now(const abi::AttnSubmit& command, std::span<const std::byte> data, Ns arrival,
                                        const RowPlace& place) {
  const bool groups = command.mode == abi::kGroups, chooses = groups || command.mode == abi::kSparfAttend;
  std::vector<Head> heads;
  heads.reserve(command.heads);
  for (std::uint32_t i = 0; i < command.heads; ++i) heads.emplace_back(store_, command, data, i);
  RunContext context{.engine = engine_,
                     .ftl = ftl_,
                     .clock = clock_,
                     .memory = memory_,
                     .threads = threads_,
                     .buffers = buffers_,
                     .filtered = filtered_,
                     .staged_bytes = staged_bytes_,
                     .streams = streams_,
                     .place = place,
                     .ready = arrival + device_.firmware_read(chooses ? abi::kPageBytes : UINT32_MAX)};
  if (!chooses && can_queue(context, heads)) return run_queued(context, heads);
  const auto source = make_source(context, heads);
  const auto execute = !chooses ? run_exact : groups ? run_groups : run_sparf;
  AttentionOutcome outcome = execute(context, heads, *source);
  if (const std::uint32_t damaged = source->damaged(); damaged > 0) {
    ftl_.count_lost(damaged);
    return {.status = abi::kUnrecoveredRead, .data = {}, .done = outcome.done};
  }
  source->close();
  return outcome;
}

AttentionUnit::ForeignJob AttentionUnit::run_in(std::span<std::byte> memory, std::uint64_t job, Ns start) {
  const std::uint32_t status = engine_.attend_in(memory, job);
  if (status != 0) return {status, start};
  abi::AttentionJob fields;
  std::memcpy(&fields, memory.data() + job, sizeof fields);
  return {status, clock_.count(fields, start)};
}

}  // namespace kvdrive
