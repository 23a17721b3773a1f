// SPDX-License-Identifier: Apache-2.0
#include "ftl/flash_schedule.hpp"

#include <algorithm>
#include <iterator>

namespace kvdrive {
namespace {

constexpr Ns kNever = UINT64_MAX;

TransferKind kind_of(Sink sink) {
  if (sink == Sink::kFirmware) return TransferKind::kBackground;
  return sink == Sink::kHost ? TransferKind::kWeights : TransferKind::kAttention;
}

constexpr std::size_t index(TransferKind kind) { return static_cast<std::size_t>(kind); }
constexpr Ns deadline(TransferKind kind, Ns ready) { return ready + kTransferPatience[index(kind)]; }

}  // namespace

void FlashSchedule::start(const Range& range, std::span<const PageRead> pages, Ns ready, TransferKind kind) {
  if (started_.size() == kMostBatches) finish(started_.begin(), ready);
  Batch& batch =
      started_.emplace_back(Batch{.range = range, .ready = ready, .done = ready, .kind = kind, .waiting = {}});
  add(batch, pages, kind == TransferKind::kAhead ? TraceWork::kSenseAhead : TraceWork::kSenseWeights);
  pages_started_ += pages.size();
}

void FlashSchedule::add(Batch& batch, std::span<const PageRead> pages, TraceWork work) {
  for (PageRead read : pages) {
    read.work = work;
    const Page page{.batch = &batch, .read = read, .kind = batch.kind, .deadline = deadline(batch.kind, batch.ready)};
    enqueue(++last_, page);
    pages_.emplace(last_, page);
    batch.waiting.push_back(last_);
  }
  batch.left += pages.size();
}

void FlashSchedule::enqueue(std::uint64_t number, const Page& page) {
  dies_[page.read.die][index(page.kind)].emplace(page.deadline, number);
  ++waiting_[index(page.kind)];
}

void FlashSchedule::dequeue(std::uint64_t number, const Page& page) {
  dies_[page.read.die][index(page.kind)].erase({page.deadline, number});
  if (--waiting_[index(page.kind)] == 0) shares_.forget(page.kind);
}

void FlashSchedule::begin(std::uint64_t number, Ns ready) {
  const auto found = pages_.find(number);
  const Page& page = found->second;
  Batch& batch = *page.batch;
  dequeue(number, page);
  batch.done = std::max(batch.done, device_.read(page.read, ready, batch.sink));
  --batch.left;
  pages_.erase(found);
}

Ns FlashSchedule::earliest(const Page& page) const {
  const std::uint32_t die = page.read.die;
  const Timing& timing = device_.timing();
  const Ns sensing = *std::ranges::max_element(timing.read_full_ns) + timing.channel.transfer(page.read.bytes);
  const Ns when =
      std::max({page.batch->ready, device_.now(), device_.readable_at(die), device_.when_channel_has(die, sensing)});
  if (page.batch->sink != Sink::kHost) return when;
  return std::max(when, device_.when_host_link_has(kMostBacklog));
}

// Begins one read that can begin before this time. Returns false if there is none.
bool FlashSchedule::step(Ns before) {
  Ns first = before;
  TransferShares::Heads heads;
  for (const Die& die : dies_) {
    for (const std::set<Turn>& turns : die) {
      if (turns.empty()) continue;
      const auto [due, number] = *turns.begin();
      const Page& page = pages_.at(number);
      const Ns when = earliest(page);
      if (when >= before || when > first) continue;
      if (when < first) heads = {};
      first = when;
      auto& head = heads[index(page.kind)];
      if (!head || Turn(due, number) < Turn(head->deadline, head->id)) {
        head = {.deadline = due, .id = number, .bytes = page.read.bytes};
      }
    }
  }
  const auto next = shares_.next(heads);
  if (next) begin(next->head.id, first);
  return next.has_value();
}

Ns FlashSchedule::read(std::span<const PageRead> pages, Ns ready, Sink sink) {
  Ns done = ready;
  if (pages_.empty()) {
    for (const PageRead& page : pages) done = std::max(done, device_.read(page, ready, sink));
    return done;
  }
  Batch batch{.range = {}, .ready = ready, .done = ready, .sink = sink, .kind = kind_of(sink), .waiting = {}};
  add(batch, pages, TraceWork::kSense);
  while (batch.left > 0) step(kNever);
  return batch.done;
}

Ns FlashSchedule::program(std::uint32_t number, std::uint32_t page, std::uint32_t bytes, Ns ready) {
  while (!pages_.empty()) {
    const Ns could_begin = std::max(ready, device_.free_at(number));
    catch_up(could_begin);
    if (device_.free_at(number) > could_begin) continue;
    TransferShares::Heads heads;
    heads[index(TransferKind::kBackground)] = {
        .deadline = deadline(TransferKind::kBackground, ready), .id = UINT64_MAX, .bytes = bytes};
    for (const std::set<Turn>& turns : dies_[number]) {
      if (turns.empty()) continue;
      const auto [due, first] = *turns.begin();
      const Page& read = pages_.at(first);
      if (earliest(read) <= could_begin) {
        heads[index(read.kind)] = {.deadline = due, .id = first, .bytes = read.read.bytes};
      }
    }
    const auto next = shares_.next(heads);
    if (!next || next->kind == TransferKind::kBackground) break;
    begin(next->head.id, could_begin);
  }
  shares_.forget(TransferKind::kBackground);
  return device_.program(number, page, bytes, ready);
}

void FlashSchedule::catch_up(Ns now) {
  while (step(now)) {
  }
}

Ns FlashSchedule::join(std::uint64_t family, std::uint32_t group, Ns now) {
  for (auto batch = started_.end(); batch != started_.begin();) {
    --batch;
    if (batch->range.family == family && group >= batch->range.first && group < batch->range.end) {
      return finish(batch, now);
    }
  }
  return now;
}

Ns FlashSchedule::finish(Batches::iterator batch, Ns now) {
  if (batch->kind == TransferKind::kAhead) {
    batch->kind = TransferKind::kWeights;
    for (const std::uint64_t number : batch->waiting) {
      const auto found = pages_.find(number);
      if (found == pages_.end()) continue;
      dequeue(number, found->second);
      found->second.kind = batch->kind;
      found->second.deadline = deadline(batch->kind, now);
      enqueue(number, found->second);
    }
  }
  while (batch->left > 0) step(kNever);
  const Ns done = std::max(batch->done, now);
  started_.erase(batch);
  return done;
}

}  // namespace kvdrive
