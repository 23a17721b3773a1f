// SPDX-License-Identifier: Apache-2.0
#include "attention/queued_run.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace kvdrive {
namespace {

constexpr std::uint64_t kPage = abi::kPageBytes;

std::uint32_t groups_needed(const HeadRows& rows, std::uint32_t tokens) {
  const std::uint32_t per_group = rows.tokens_per_group();
  return std::min(rows.groups(), (tokens + per_group - 1) / per_group);
}

// One head's job in its part of the engine's memory.
class Slot {
 public:
  Slot(RunContext& context, std::uint64_t origin) : context_(context), memory_(context.engine, origin) {}
  ~Slot() { wait(); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  // The most bytes that the job of a head takes.
  static std::uint64_t bytes(const Head& head) {
    std::uint64_t total = sizeof(abi::AttentionJob) + records_of(head.command.group) * sizeof(abi::AttentionResult);
    for (const std::uint64_t part :
         {head.q.size(), head.out_bytes(), head.valid.size(), head.inline_scores.size(), head.inline_v.size()}) {
      total += whole_beats(part);
    }
    const std::uint64_t rows = std::uint64_t{head.tokens()} * head.k.row_bytes();
    return (total + 2 * (rows + 2 * kPage) + kPage - 1) / kPage * kPage;
  }

  JobMemory& memory() { return memory_; }

  // Writes everything but K and V, and starts to read those.
  void lay(const Head& head) {
    wait();
    batch_ = {};
    struck_ = false;
    head_ = &head;
    generation_ = context_.engine.queue()->generation();
    memory_.start(head, static_cast<abi::Mode>(head.command.mode));
    memory_.job.out = memory_.place(head.out_bytes());
    if (!head.valid.empty()) memory_.job.valid = memory_.place(head.valid);
    memory_.place_inline_tokens(head, true);
    memory_.job.k = read_rows(head.k, pages_[0]);
    memory_.job.v = read_rows(head.v, pages_[1]);
    context_.ftl.direct()->submit();
  }

  // Waits for K and V. Returns the number of damaged groups.
  std::uint32_t arrive() {
    if (generation_ != context_.engine.queue()->generation()) lay(*head_);  // the reads went to memory that is gone
    wait();
    std::uint32_t damaged = batch_.error != 0 || struck_ ? 1 : 0;
    damaged += context_.ftl.damaged(head_->k.list(), 0, pages_[0]);
    return damaged + context_.ftl.damaged(head_->v.list(), 0, pages_[1]);
  }

 private:
  void wait() {
    if (head_ != nullptr) context_.ftl.direct()->wait(batch_);
  }

  // Starts the reads of groups into consecutive pages; staged rows follow. Returns their address.
  std::uint64_t read_rows(const HeadRows& rows, std::vector<const std::byte*>& pages) {
    ReadPath& path = context_.ftl.read_path();
    const std::uint32_t groups = groups_needed(rows, head_->tokens());
    const std::uint32_t staged = head_->tokens() - std::min(head_->tokens(), rows.tokens_in_groups());
    memory_.align_to_page();
    const std::uint64_t staged_bytes = std::uint64_t{staged} * rows.row_bytes();
    const std::uint64_t address =
        memory_.place(std::max(groups * kPage + staged_bytes, std::uint64_t{abi::kBeatBytes}));
    std::byte* const to = memory_.at(address);
    pages.clear();
    std::uint32_t first = 0;  // of the groups whose read is being assembled
    const auto read = [&](std::uint32_t end) {
      if (end == first) return;
      path.start_read(*context_.ftl.direct(), path.unit(rows.list(), first), end - first, to + first * kPage, batch_);
    };
    for (std::uint32_t group = 0; group < groups; ++group) {
      const Unit unit = path.unit(rows.list(), group);
      const std::byte* const in_memory = path.in_memory(unit);
      const bool follows = group > first && unit == path.unit(rows.list(), group - 1) + 1 &&
                           group - first < DirectReads::kBufferBytes / kPage;
      if (in_memory != nullptr || !follows) {
        read(group);
        first = group;
      }
      if (in_memory != nullptr) {
        std::memcpy(to + group * kPage, in_memory, kPage);
        first = group + 1;
      }
      struck_ |= path.count_read(unit, Sink::kComputer);
      pages.push_back(to + group * kPage);
    }
    read(groups);
    if (staged > 0) {
      std::memcpy(to + groups * kPage, rows.staged().data(), staged_bytes);
      context_.staged_bytes += staged_bytes;
    }
    return address;
  }

  RunContext& context_;
  JobMemory memory_;
  const Head* head_ = nullptr;
  DirectReads::Batch batch_{};
  std::array<std::vector<const std::byte*>, 2> pages_;  // of K and of V
  std::uint64_t generation_ = 0;
  bool struck_ = false;
};

// Records of all heads, then their outputs.
void keep_results(JobMemory& memory, std::span<const Head> heads, std::size_t index, std::vector<std::byte>& data) {
  const auto records = memory.records();
  const std::size_t bytes = heads[index].out_bytes();
  data.resize(heads.size() * (records.size() + bytes));
  std::ranges::copy(records, data.data() + index * records.size());
  std::memcpy(data.data() + heads.size() * records.size() + index * bytes, memory.at(memory.job.out), bytes);
}

}  // namespace

bool can_queue(const RunContext& context, std::span<const Head> heads) {
  JobQueue* const queue = context.engine.queue();
  const Head& any = heads.front();
  return queue != nullptr && context.ftl.direct() != nullptr && context.ftl.keeps_payload() &&
         queue->units(any.command.group, any.k.head_dim()) > 0 && any.k.format() == nvme::kBinary16 &&
         any.k.tokens_per_group() * any.k.row_bytes() == abi::kPageBytes;
}

AttentionOutcome run_queued(RunContext& context, std::span<const Head> heads) {
  JobQueue& queue = *context.engine.queue();
  const unsigned units = queue.units(heads.front().command.group, heads.front().k.head_dim());
  const std::size_t running_most = std::min<std::size_t>(units, heads.size());
  std::uint64_t part = 0;
  for (const Head& head : heads) part = std::max(part, Slot::bytes(head));
  const std::size_t parts = std::min(running_most + 1, heads.size());  // one more: the pages of the next head arrive
  context.engine.memory().use(parts * part);
  std::deque<Slot> slots;
  for (std::size_t i = 0; i < parts; ++i) slots.emplace_back(context, i * part);
  const auto slot = [&](std::size_t head) -> Slot& { return slots[head % parts]; };

  AttentionOutcome outcome;
  outcome.done = context.ready;
  std::uint32_t damaged = 0;
  std::size_t started = 0, finished = 0;
  const auto finish = [&] {
    const std::uint32_t status = queue.finish();
    if (status == 0) keep_results(slot(finished).memory(), heads, finished, outcome.data);
    if (outcome.result == 0) outcome.result = status;
    ++finished;
  };
  slot(0).lay(heads[0]);
  while (started < heads.size() && damaged == 0 && outcome.result == 0) {
    const std::size_t next = started + 1;
    if (next < heads.size()) {
      if (next - finished >= parts) finish();
      slot(next).lay(heads[next]);
    }
    damaged = slot(started).arrive();
    if (damaged > 0) break;
    if (started - finished >= running_most) finish();
    outcome.done = std::max(outcome.done, context.clock.count(slot(started).memory().job, context.ready));
    slot(started).memory().start_on(queue);
    ++started;
  }
  while (finished < started) finish();
  outcome.status = damaged > 0 ? abi::kUnrecoveredRead : status_of(static_cast<std::uint32_t>(outcome.result));
  if (outcome.status != abi::kSuccess) outcome.data.clear();
  context.ftl.count_lost(damaged);
  return outcome;
}

}  // namespace kvdrive
