// SPDX-License-Identifier: Apache-2.0
#include "attention/attention_unit.hpp"

#include <algorithm>
#include <cstring>

#include "engine/cycles.hpp"

namespace kvdrive {
namespace {

std::uint64_t query_bytes(const abi::AttnSubmit& command, std::uint32_t row_bytes) {
  return std::uint64_t{command.group} * row_bytes;
}

std::uint64_t out_bytes(const abi::AttnSubmit& command, std::uint32_t row_bytes) {
  return query_bytes(command, row_bytes) * (command.mode == abi::kPartial ? 2 : 1);
}

std::uint64_t valid_bytes(const abi::AttnSubmit& command) {
  return command.has_valid ? whole_beats((std::uint64_t{command.tokens} + 7) / 8) : 0;
}

std::uint64_t tail_score_bytes(const abi::AttnSubmit& command) {
  return std::uint64_t{command.group} * whole_beats(std::uint64_t{command.tail_tokens} * 4);
}

bool fields_fit(const abi::AttnSubmit& command) {
  const bool sparf = command.mode == abi::kSparfAttend;
  const bool mode = sparf || command.mode == abi::kExact || command.mode == abi::kPartial;
  const bool choice =
      sparf ? command.r > 0 && command.k_top > 0 : command.r == 0 && command.k_top == 0 && command.local == 0;
  return mode && choice && command.heads > 0 && command.head + command.heads <= 256 && command.tokens > 0 &&
         command.tokens <= abi::kMaxTokens - std::uint32_t{command.tail_tokens} && command.has_valid <= 1 &&
         command.reserved0 == 0 && std::ranges::find(abi::kGroupSizes, command.group) != std::end(abi::kGroupSizes);
}

abi::NvmeStatus status_of(std::uint32_t engine_status) {
  if (engine_status == 0) return abi::kSuccess;
  if (engine_status == abi::kNonFinite) return abi::kValueNotFinite;
  if (engine_status == abi::kEmpty) return abi::kNoValidToken;
  return abi::kJobRefused;
}

// `digits`: the most that the choice of rows or tokens can take; how many it does take depends on the data.
std::uint64_t job_cycles(const abi::AttentionJob& job) {
  return static_cast<std::uint64_t>(attention_cycles({.mode = job.mode,
                                                      .g = job.group,
                                                      .d = job.head_dim,
                                                      .tokens = job.tokens,
                                                      .tail = job.tail_tokens,
                                                      .r = job.r,
                                                      .k_top = job.k_top,
                                                      .digits = job.mode == abi::kSparfRows ? 2 : 4}));
}

}  // namespace

abi::NvmeStatus AttentionUnit::check(const abi::AttnSubmit& command, std::size_t data_bytes) const {
  if (!fields_fit(command)) return abi::kInvalidField;
  if (!store_.has_session(command.session)) return abi::kUnknownSession;
  std::uint32_t row_bytes = 0;
  for (std::uint32_t head = command.head; head < command.head + std::uint32_t{command.heads}; ++head) {
    for (const auto kind : {abi::kKeys, abi::kValues}) {
      const HeadRows* rows = store_.find(command.session, command.layer, head, kind);
      if (!rows || rows->tokens() < command.tokens) return abi::kTokensMissing;
      if (row_bytes == 0) row_bytes = rows->row_bytes();
      if (rows->row_bytes() != row_bytes) return abi::kRowMismatch;
    }
  }
  return data_bytes == payload_bytes(command) ? abi::kSuccess : abi::kDataLength;
}

std::optional<std::uint64_t> AttentionUnit::payload_bytes(const abi::AttnSubmit& command) const {
  const HeadRows* rows = store_.find(command.session, command.layer, command.head, abi::kKeys);
  if (!rows) return std::nullopt;
  const std::uint64_t tail = tail_score_bytes(command) + std::uint64_t{command.tail_tokens} * rows->row_bytes();
  return command.heads * (query_bytes(command, rows->row_bytes()) + tail) + valid_bytes(command);
}

AttentionUnit::Head AttentionUnit::head_of(const abi::AttnSubmit& command, std::span<const std::byte> data,
                                           std::uint32_t index) const {
  const std::uint32_t number = command.head + index;
  Head head{command,
            *store_.find(command.session, command.layer, number, abi::kKeys),
            *store_.find(command.session, command.layer, number, abi::kValues),
            {},
            {},
            {},
            {}};
  const auto share = [&data, index, heads = command.heads](std::uint64_t bytes) {
    const auto taken = data.subspan(index * bytes, bytes);
    data = data.subspan(heads * bytes);
    return taken;
  };
  head.q = share(query_bytes(command, head.k.row_bytes()));
  head.valid = data.first(valid_bytes(command));
  data = data.subspan(head.valid.size());
  head.tail_scores = share(tail_score_bytes(command));
  head.tail_v = share(std::uint64_t{command.tail_tokens} * head.k.row_bytes());
  return head;
}

bool AttentionUnit::Head::any_valid(std::uint32_t first, std::uint32_t end) const {
  for (std::uint32_t token = first; token < end; ++token) {
    if (is_valid(token)) return true;
  }
  return false;
}

std::vector<bool> AttentionUnit::Head::wanted_groups(const HeadRows& rows, std::uint32_t end) const {
  const std::uint32_t per_group = rows.tokens_per_group();
  std::vector<bool> wanted(std::min((end + per_group - 1) / per_group, rows.groups()));
  for (std::uint32_t group = 0; group < wanted.size(); ++group) {
    wanted[group] = any_valid(group * per_group, std::min((group + 1) * per_group, end));
  }
  return wanted;
}

// Plans to read the rows from `first` on to `to`; rows of groups without a valid token are zero.
void AttentionUnit::fetch_rows(const Head& head, const HeadRows& rows, std::uint32_t first, std::byte* to,
                               RowFetch& fetch) {
  const std::uint32_t end = head.command.tokens;
  std::memset(to, 0, std::uint64_t{end - first} * rows.row_bytes());
  const std::vector<bool> wanted = head.wanted_groups(rows, end);
  const auto add = [&](std::uint32_t from, std::uint32_t until) {
    from = std::max(from, first);
    if (from < until) fetch.add(rows, from, until - from, to + std::uint64_t{from - first} * rows.row_bytes());
  };
  for (std::uint32_t group = 0; group < wanted.size(); ++group) {
    if (wanted[group]) add(group * rows.tokens_per_group(), std::min((group + 1) * rows.tokens_per_group(), end));
  }
  add(rows.tokens_in_groups(), end);
}

AttentionOutcome AttentionUnit::run(const abi::AttnSubmit& command, std::span<const std::byte> data, Ns arrival) {
  const bool sparf = command.mode == abi::kSparfAttend;
  engine_.wake();
  ready_ = arrival + device_.firmware_read(sparf ? abi::kPageBytes : UINT32_MAX);
  if (!sparf) return run_dense(command, data);
  if (engine_.reads_pages() && ftl_.direct() != nullptr) return run_sparf_streamed(command, data);
  return collect(command, [&](std::uint32_t i) {
    data_done_ = ready_;
    return run_sparf(head_of(command, data, i));
  });
}

// Records and outputs of all heads, until one fails. `run_head` leaves its results in `memory_`.
AttentionOutcome AttentionUnit::collect(const abi::AttnSubmit& command,
                                        const std::function<Outcome(std::uint32_t)>& run_head) {
  AttentionOutcome outcome;
  const std::size_t record_bytes = sizeof(abi::AttentionResult);
  for (std::uint32_t i = 0; i < command.heads; ++i) {
    const auto [status, engine_status] = run_head(i);
    outcome.status = status;
    outcome.result = engine_status;
    if (status != abi::kSuccess) break;
    const std::size_t bytes = out_bytes(command, std::uint32_t{memory_->job.head_dim} * 2);
    outcome.data.resize(command.heads * (record_bytes + bytes));
    std::memcpy(outcome.data.data() + i * record_bytes, memory_->at(memory_->job.result), record_bytes);
    std::memcpy(outcome.data.data() + command.heads * record_bytes + i * bytes, memory_->at(memory_->job.out), bytes);
  }
  if (outcome.status != abi::kSuccess) outcome.data.clear();
  outcome.done = std::max(engine_free_, data_done_);
  return outcome;
}

AttentionOutcome AttentionUnit::refuse_damaged(std::uint32_t groups) {
  ftl_.count_lost(groups);
  return {.status = abi::kUnrecoveredRead, .data = {}, .done = std::max(engine_free_, data_done_)};
}

void AttentionUnit::start_job(const Head& head, abi::Mode mode) {
  memory_->job.mode = static_cast<std::uint8_t>(mode);
  memory_->job.group = head.command.group;
  memory_->job.head_dim = static_cast<std::uint16_t>(head.k.head_dim());
  memory_->job.scale_log2e = head.command.scale_log2e;
  memory_->job.tokens = head.command.tokens;
  memory_->job.out = memory_->place(mode == abi::kSparfTokens ? whole_beats((head.command.tokens + 7) / 8)
                                                              : out_bytes(head.command, head.k.row_bytes()));
}

void AttentionUnit::place_tail(const Head& head, bool with_v) {
  memory_->job.tail_tokens = head.command.tail_tokens;
  memory_->job.tail_scores = memory_->place(head.tail_scores);
  memory_->job.tail_v = with_v ? memory_->place(head.tail_v) : 0;
}

// The cycles that the kernels' manifests state, at the preset's clock.
void AttentionUnit::count_job(const abi::AttentionJob& job, Ns data_done) {
  ++jobs_;
  const std::uint64_t cycles = job_cycles(job);
  engine_cycles_ += cycles;
  if (!device_.timing().modelled()) return;
  const Ns start = std::max(engine_free_, data_done);
  engine_free_ = start + cycles * 1000 / device_.timing().engine_mhz;
  device_.trace().add(TraceTrack::kEngine, 0, TraceWork::kJob, start, engine_free_, cycles);
}

AttentionUnit::Outcome AttentionUnit::run_job(const KvPages* pages) {
  count_job(memory_->job, data_done_);
  if (!ftl_.keeps_payload()) return {};  // nothing to compute with: time only
  const std::uint32_t status = memory_->run(engine_, pages);
  return {status_of(status), status};
}

AttentionUnit::ForeignJob AttentionUnit::run_in(std::span<std::byte> memory, std::uint64_t job, Ns start) {
  const std::uint32_t status = engine_.attention(memory, job);
  if (status != 0) return {status, start};
  abi::AttentionJob fields;
  std::memcpy(&fields, memory.data() + job, sizeof fields);
  count_job(fields, start);
  return {status, engine_free_};
}

}  // namespace kvdrive
