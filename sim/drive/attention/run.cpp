// SPDX-License-Identifier: Apache-2.0
#include "attention/run.hpp"

#include <algorithm>
#include <cstring>

#include "code_order.hpp"

namespace kvdrive {

abi::NvmeStatus status_of(std::uint32_t engine_status) {
  if (engine_status == 0) return abi::kSuccess;
  if (engine_status == abi::kNonFinite) return abi::kValueNotFinite;
  if (engine_status == abi::kEmpty) return abi::kNoValidToken;
  return abi::kJobRefused;
}

HeadOutcome run_job(RunContext& context, Ns data_done, const KvPages* pages) {
  const Ns done = context.clock.count(context.memory.job, data_done, context.memory.over_codes);
  if (!context.ftl.keeps_payload()) return {.done = done};
  const std::uint32_t status = context.memory.run(pages);
  return {status_of(status), status, done};
}

AttentionOutcome collect(RunContext& context, std::span<const Head> heads,
                         const std::function<HeadOutcome(std::size_t)>& run_head) {
  AttentionOutcome outcome;
  JobMemory& memory = context.memory;
  outcome.done = context.ready;
  for (std::size_t i = 0; i < heads.size() && outcome.status == abi::kSuccess; ++i) {
    const HeadOutcome done = run_head(i);
    outcome.status = done.status;
    outcome.result = done.engine_status;
    outcome.done = std::max(outcome.done, done.done);
    if (done.status != abi::kSuccess) break;
    const auto records = memory.records();
    const std::size_t bytes = heads[i].out_bytes();
    outcome.data.resize(heads.size() * (records.size() + bytes));
    std::ranges::copy(records, outcome.data.data() + i * records.size());
    std::memcpy(outcome.data.data() + heads.size() * records.size() + i * bytes, memory.at(memory.job.out), bytes);
  }
  if (outcome.status != abi::kSuccess) outcome.data.clear();
  return outcome;
}

AttentionOutcome run_exact(RunContext& context, std::span<const Head> heads, PageSource& pages) {
  JobMemory& memory = context.memory;
  return collect(context, heads, [&](std::size_t i) -> HeadOutcome {
    const Head& head = heads[i];
    memory.start(head, static_cast<abi::Mode>(head.command.mode));
    memory.over_codes = has_code_kernel(head.k.format(), head.command.group, head.k.head_dim());
    if (memory.over_codes) memory.job.r = static_cast<std::uint16_t>(code_bits(head.k.format()));
    memory.job.out = memory.place(head.out_bytes());
    if (!head.valid.empty()) memory.job.valid = memory.place(head.valid);
    memory.place_inline_tokens(head, true);
    const PageSource::Dense rows = pages.dense(i);
    if (!rows.whole) return {.status = abi::kUnrecoveredRead, .done = rows.done};
    return run_job(context, rows.done, rows.pages);
  });
}

}  // namespace kvdrive
