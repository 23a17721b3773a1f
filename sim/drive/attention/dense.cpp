// SPDX-License-Identifier: Apache-2.0
// EXACT and PARTIAL. Engines that can take K and V from the pages in which they lie; for the others they are copied.
#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "attention/attention_unit.hpp"
#include "attention/prefetch.hpp"
#include "kv/row_fetch.hpp"

namespace kvdrive {
namespace {

constexpr std::size_t kGroupsAtOnce = 1024;  // that a thread checks
constexpr std::size_t kGroupsAhead = 4;      // that it asks for meanwhile

unsigned processors() {
  static const unsigned count = std::thread::hardware_concurrency();
  return count;
}

// One head's pages, and what is going on with them.
struct Gathered {
  std::vector<const std::byte*> k, v;
  bool whole = true;
  Ns done = 0;
  std::atomic<std::uint32_t> damaged = 0;
  TransferThreads::Batch arrived, checked;
};

class PagesInMemory final : public KvPages {
 public:
  // `checked`: by somebody else.
  PagesInMemory(const Ftl& ftl, const HeadRows& k, const HeadRows& v, Gathered& head, bool checked)
      : KvPages(k.tokens_per_group()), ftl_(ftl), rows_{&k, &v}, head_(head), checked_(checked) {}

  void visit(abi::KvKind kind, const Visit& visit) const override { visit(0, kind == abi::kKeys ? head_.k : head_.v); }

  void check(abi::KvKind kind, std::size_t first, std::span<const std::byte* const> pages) const override {
    if (!checked_) head_.damaged += damaged_groups(ftl_, *rows_[kind], first, pages);
  }

 private:
  const Ftl& ftl_;
  const HeadRows* const rows_[2];
  Gathered& head_;
  const bool checked_;
};

void add_checks(std::vector<TransferThreads::Task>& tasks, const Ftl& ftl, const HeadRows& rows,
                std::span<const std::byte* const> pages, std::atomic<std::uint32_t>& damaged) {
  for (std::size_t first = 0; first < pages.size(); first += kGroupsAtOnce) {
    const auto part = pages.subspan(first, std::min(kGroupsAtOnce, pages.size() - first));
    tasks.emplace_back([&ftl, &rows, first, part, &damaged] {
      for (std::size_t i = 0; i < part.size(); i += kGroupsAhead) {
        const auto now = part.subspan(i, std::min(kGroupsAhead, part.size() - i));
        const std::size_t after = i + now.size();
        for (const std::byte* page : part.subspan(after, std::min(kGroupsAhead, part.size() - after))) prefetch(page);
        damaged += damaged_groups(ftl, rows, first + i, now);
      }
    });
  }
}

// The wanted groups, the first ones of the head, then the tail up to `tokens` as if it were more of them.
void gather(Ftl& ftl, const HeadRows& rows, std::uint32_t tokens, const std::vector<bool>& wanted, Ns ready,
            Gathered& to, std::vector<const std::byte*>& pages, std::uint64_t& tail_bytes) {
  const std::uint32_t per_group = rows.tokens_per_group();
  const auto groups = static_cast<std::uint32_t>(wanted.size());
  if (groups > 0) {
    const auto read = ftl.view(rows.list(), wanted, ready, Sink::kComputer, pages);
    to.whole &= read.whole;
    to.done = std::max(to.done, read.done);
  }
  for (std::uint32_t token = groups * per_group; token < tokens; token += per_group) {
    const std::size_t offset = std::size_t{token - groups * per_group} * rows.row_bytes();
    pages.push_back(rows.tail().data() + offset);
    tail_bytes += std::uint64_t{std::min(per_group, tokens - token)} * rows.row_bytes();
  }
}

}  // namespace

AttentionOutcome AttentionUnit::run_dense(const abi::AttnSubmit& command, std::span<const std::byte> data) {
  if (engine_.reads_pages() && ftl_.direct() != nullptr) return run_streamed(command, data);
  if (engine_.reads_pages() || !ftl_.keeps_payload()) return run_paged(command, data);
  return collect(command, [&](std::uint32_t i) { return run_copied(head_of(command, data, i)); });
}

// Lays out the job, but for K and V.
void AttentionUnit::start_dense(const Head& head) {
  memory_->clear();
  start_job(head, static_cast<abi::Mode>(head.command.mode));
  memory_->job.q = memory_->place(head.q);
  if (!head.valid.empty()) memory_->job.valid = memory_->place(head.valid);
  place_tail(head, true);
}

AttentionUnit::Outcome AttentionUnit::run_copied(const Head& head) {
  const std::uint32_t tokens = head.command.tokens;
  const std::uint64_t bytes = std::uint64_t{tokens} * head.k.row_bytes();
  start_dense(head);
  memory_->job.k = memory_->place(bytes);
  memory_->job.v = memory_->place(bytes);
  RowFetch fetch;
  fetch_rows(head, head.k, 0, memory_->at(memory_->job.k), fetch);
  fetch_rows(head, head.v, 0, memory_->at(memory_->job.v), fetch);
  const auto read = fetch.run(ftl_, ready_, Sink::kComputer);
  data_done_ = read.done;
  if (!read.whole) return {abi::kUnrecoveredRead};
  tail_bytes_read_ += fetch.tail_bytes();
  return run_job();
}

// While the engine works on a head, the pages of the next one arrive. Its own are checked beside it where it leaves a
// processor idle; otherwise it checks them on its way, when they are in its cache. Results count when all are whole.
AttentionOutcome AttentionUnit::run_paged(const abi::AttnSubmit& command, std::span<const std::byte> data) {
  const std::uint32_t tokens = command.tokens;
  const bool beside = ftl_.keeps_payload() && engine_.threads() < processors();
  std::vector<Gathered> heads(command.heads);
  const auto start = [&](std::uint32_t i) {
    if (i == command.heads) return;
    const Head head = head_of(command, data, i);
    Gathered& to = heads[i];
    to.done = ready_;
    auto k_groups = head.wanted_groups(head.k, tokens), v_groups = head.wanted_groups(head.v, tokens);
    gather(ftl_, head.k, tokens, k_groups, ready_, to, to.k, tail_bytes_read_);
    gather(ftl_, head.v, tokens, v_groups, ready_, to, to.v, tail_bytes_read_);
    if (!ftl_.keeps_payload()) return;
    std::vector<std::pair<ListId, std::vector<bool>>> absent;
    for (auto& [rows, groups] : {std::pair(&head.k, &k_groups), std::pair(&head.v, &v_groups)}) {
      if (groups->empty() || ftl_.fetched(rows->list(), *groups)) continue;
      absent.emplace_back(rows->list(), std::move(*groups));
    }
    if (absent.empty()) return;
    to.arrived = threads_.start({[&ftl = ftl_, absent = std::move(absent)] {
      for (const auto& [list, groups] : absent) ftl.fetch(list, groups);
    }});
  };
  start(0);
  AttentionOutcome outcome = collect(command, [&](std::uint32_t i) -> Outcome {
    Gathered& own = heads[i];
    own.arrived.wait();
    start(i + 1);
    data_done_ = own.done;
    if (!own.whole) return {abi::kUnrecoveredRead};
    const Head head = head_of(command, data, i);
    if (beside) {
      std::vector<TransferThreads::Task> tasks;
      add_checks(tasks, ftl_, head.k, own.k, own.damaged);
      add_checks(tasks, ftl_, head.v, own.v, own.damaged);
      own.checked = threads_.start(std::move(tasks));
    }
    start_dense(head);
    const PagesInMemory pages(ftl_, head.k, head.v, own, beside);
    return run_job(&pages);
  });
  std::uint32_t damaged = 0;
  for (Gathered& head : heads) {
    head.checked.wait();
    damaged += head.damaged;
  }
  return damaged > 0 ? refuse_damaged(damaged) : outcome;
}

}  // namespace kvdrive
