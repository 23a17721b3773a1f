// SPDX-License-Identifier: Apache-2.0
#include "ftl/ahead_reads.hpp"

#include <algorithm>
#include <iterator>

namespace kvdrive {
namespace {

constexpr Ns kMostBacklog = 200'000;

TransferKind kind_of(Sink sink) {
  if (sink == Sink::kFirmware) return TransferKind::kBackground;
  return sink == Sink::kHost ? TransferKind::kWeights : TransferKind::kAttention;
}

constexpr Ns patience(TransferKind kind) { return kTransferPatience[static_cast<std::size_t>(kind)]; }

}  // namespace

void AheadReads::add(const Range& range, std::span<const PageRead> pages, Ns ready, Sink sink) {
  if (batches_.size() == kMostBatches) finish(batches_.begin(), ready);
  const auto batch = batches_.insert(batches_.end(), {.range = range,
                                                      .ready = ready,
                                                      .done = ready,
                                                      .sink = sink,
                                                      .waiting = static_cast<std::uint32_t>(pages.size())});
  for (PageRead page : pages) {
    page.ahead = true;
    const TransferSchedule::Waiting turn{.kind = TransferKind::kAhead,
                                         .deadline = ready + patience(TransferKind::kAhead),
                                         .bytes = page.bytes,
                                         .id = ++last_};
    schedule_.add(turn);
    waiting_.emplace(turn.id, Waiting{batch, page, turn});
  }
  pages_ += pages.size();
}

// Precondition: the schedule has granted the page's turn.
void AheadReads::start(WaitingPages::iterator waiting, Ns ready) {
  Batch& batch = *waiting->second.batch;
  batch.done = std::max(batch.done, device_.read(waiting->second.page, ready, batch.sink));
  --batch.waiting;
  waiting_.erase(waiting);
}

Ns AheadReads::read(std::span<const PageRead> pages, Ns ready, Sink sink) {
  Ns done = ready;
  if (schedule_.empty()) {
    for (const PageRead& page : pages) done = std::max(done, device_.read(page, ready, sink));
    return done;
  }
  const TransferKind kind = kind_of(sink);
  const std::uint64_t first = last_ + 1;
  for (const PageRead& page : pages) {
    schedule_.add({.kind = kind, .deadline = ready + patience(kind), .bytes = page.bytes, .id = ++last_});
  }
  for (std::size_t left = pages.size(); left > 0;) {
    const auto turn = schedule_.next();
    if (!turn) break;
    if (turn->id >= first) {
      done = std::max(done, device_.read(pages[turn->id - first], ready, sink));
      --left;
    } else {
      start(waiting_.find(turn->id), ready);
    }
  }
  return done;
}

// Ends as soon as the link to the host is busy for kMostBacklog: what comes after these pages, such as the result of a
// command, must not wait behind all of them.
void AheadReads::use_idle_dies(Ns now) {
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    const auto next = std::next(waiting);
    const Ns ready = std::max(waiting->second.batch->ready, device_.now());
    if (waiting->second.batch->sink == Sink::kHost && device_.to_host(0, now) > now + kMostBacklog) return;
    if (std::max(ready, device_.free_at(waiting->second.page.die)) < now) {
      schedule_.grant(waiting->second.turn);
      start(waiting, ready);
    }
    waiting = next;
  }
}

Ns AheadReads::join(std::uint64_t family, std::uint32_t group, Ns now) {
  for (auto batch = batches_.end(); batch != batches_.begin();) {
    --batch;
    if (batch->range.family == family && group >= batch->range.first && group < batch->range.end) {
      return finish(batch, now);
    }
  }
  return now;
}

Ns AheadReads::finish(Batches::iterator batch, Ns now) {
  for (auto waiting = waiting_.begin(); batch->waiting > 0;) {
    const auto next = std::next(waiting);
    if (waiting->second.batch == batch) {
      schedule_.grant(waiting->second.turn);
      start(waiting, now);
    }
    waiting = next;
  }
  const Ns done = std::max(batch->done, now);
  batches_.erase(batch);
  return done;
}

}  // namespace kvdrive
