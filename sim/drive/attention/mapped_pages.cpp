// SPDX-License-Identifier: Apache-2.0
#include "attention/mapped_pages.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "attention/prefetch.hpp"

namespace kvdrive {
namespace {

constexpr std::size_t kGroupsAtOnce = 1024;  // groups that a thread checks at once
constexpr std::size_t kGroupsAhead = 4;      // groups that it prefetches meanwhile

unsigned processors() {
  static const unsigned count = std::thread::hardware_concurrency();
  return count;
}

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

}  // namespace

// The pages of one head, and the work in progress on them.
struct MappedPages::Gathered {
  std::vector<const std::byte*> k, v;
  bool whole = true;
  Ns done = 0;
  std::atomic<std::uint32_t> damaged = 0;
  TransferThreads::Batch arrived, checked;
};

class MappedPages::Pages final : public KvPages {
 public:
  // `checked`: other threads check the pages, so the engine does not.
  Pages(const Ftl& ftl, const Head& head, Gathered& gathered, bool checked)
      : KvPages(head.k.tokens_per_group(), head.k.format()),
        ftl_(ftl),
        rows_{&head.k, &head.v},
        gathered_(gathered),
        checked_(checked) {}

  void visit(abi::KvKind kind, const Visit& visit) const override {
    visit(0, kind == abi::kKeys ? gathered_.k : gathered_.v);
  }

  void check(abi::KvKind kind, std::size_t first, std::span<const std::byte* const> pages) const override {
    if (!checked_) gathered_.damaged += damaged_groups(ftl_, *rows_[kind], first, pages);
  }

 private:
  const Ftl& ftl_;
  const HeadRows* const rows_[2];
  Gathered& gathered_;
  const bool checked_;
};

MappedPages::MappedPages(RunContext& context, std::span<const Head> heads)
    : CopiedPages(context, heads), beside_(context.ftl.keeps_payload() && context.engine.threads() < processors()) {}

MappedPages::~MappedPages() = default;

// Lists the wanted groups of the head, then the staged rows as if they were further groups.
void MappedPages::gather(const HeadRows& rows, const Head& head, const std::vector<bool>& wanted, Gathered& to,
                         std::vector<const std::byte*>& pages) {
  const std::uint32_t per_group = rows.tokens_per_group(), tokens = head.tokens();
  const auto groups = static_cast<std::uint32_t>(wanted.size());
  if (groups > 0) {
    const auto read = context_.ftl.view(rows.list(), wanted, context_.ready, Sink::kComputer, pages);
    to.whole &= read.whole;
    to.done = std::max(to.done, read.done);
  }
  for (std::uint32_t token = groups * per_group; token < tokens; token += per_group) {
    const std::size_t offset = std::size_t{token - groups * per_group} * rows.row_bytes();
    pages.push_back(rows.staged().data() + offset);
    context_.staged_bytes += std::uint64_t{std::min(per_group, tokens - token)} * rows.row_bytes();
  }
}

void MappedPages::start(std::size_t index) {
  if (index == heads_.size()) return;
  const Head& head = heads_[index];
  Gathered& to = *gathered_.emplace_back(std::make_unique<Gathered>());
  to.done = context_.ready;
  std::vector<bool> k_groups = head.wanted_groups(head.k), v_groups = head.wanted_groups(head.v);
  gather(head.k, head, k_groups, to, to.k);
  gather(head.v, head, v_groups, to, to.v);
  Ftl& ftl = context_.ftl;
  if (!ftl.keeps_payload()) return;
  std::vector<std::pair<ListId, std::vector<bool>>> absent;
  for (auto& [rows, groups] : {std::pair(&head.k, &k_groups), std::pair(&head.v, &v_groups)}) {
    if (groups->empty() || ftl.fetched(rows->list(), *groups)) continue;
    absent.emplace_back(rows->list(), std::move(*groups));
  }
  if (absent.empty()) return;
  to.arrived = context_.threads.start({[&ftl, absent = std::move(absent)] {
    for (const auto& [list, groups] : absent) ftl.fetch(list, groups);
  }});
}

PageSource::Dense MappedPages::dense(std::size_t index) {
  if (index == 0) start(0);
  Gathered& own = *gathered_[index];
  own.arrived.wait();
  start(index + 1);
  if (!own.whole) return {.whole = false, .done = own.done};
  const Head& head = heads_[index];
  if (beside_) {
    std::vector<TransferThreads::Task> tasks;
    add_checks(tasks, context_.ftl, head.k, own.k, own.damaged);
    add_checks(tasks, context_.ftl, head.v, own.v, own.damaged);
    own.checked = context_.threads.start(std::move(tasks));
  }
  pages_ = std::make_unique<Pages>(context_.ftl, head, own, beside_);
  return {.done = own.done, .pages = pages_.get()};
}

std::uint32_t MappedPages::damaged() {
  std::uint32_t damaged = 0;
  for (const auto& head : gathered_) {
    head->checked.wait();
    damaged += head->damaged;
  }
  return damaged;
}

}  // namespace kvdrive
