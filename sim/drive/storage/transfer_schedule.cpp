// SPDX-License-Identifier: Apache-2.0
#include "storage/transfer_schedule.hpp"

#include <algorithm>

namespace kvdrive {

std::optional<TransferShares::Granted> TransferShares::next(const Heads& heads) {
  const auto before = [](const Head& one, const Head& other) {
    return std::pair(one.deadline, one.id) < std::pair(other.deadline, other.id);
  };
  std::optional<Granted> earliest, owed;
  std::uint64_t most_owed = 0;
  for (std::size_t i = 0; i < kTransferKinds; ++i) {
    const std::optional<Head>& head = heads[i];
    if (!head) continue;
    const Granted here{.kind = static_cast<TransferKind>(i), .head = *head};
    if (!earliest || before(here.head, earliest->head)) earliest = here;
    if (owed_[i] >= head->bytes * kWholeShare && (!owed || owed_[i] > most_owed)) {
      owed = here;
      most_owed = owed_[i];
    }
  }
  const std::optional<Granted> granted = owed ? owed : earliest;
  if (granted) grant(granted->kind, granted->head.bytes, heads);
  return granted;
}

void TransferShares::grant(TransferKind kind, std::uint64_t bytes, const Heads& heads) {
  for (std::size_t i = 0; i < kTransferKinds; ++i) {
    if (heads[i]) owed_[i] += bytes * kTransferShares[i];
  }
  std::uint64_t& granted = owed_[static_cast<std::size_t>(kind)];
  granted -= std::min(granted, bytes * kWholeShare);
}

TransferShares::Heads TransferSchedule::heads() const {
  TransferShares::Heads heads;
  for (std::size_t i = 0; i < kTransferKinds; ++i) {
    if (waiting_[i].empty()) continue;
    const auto& [key, bytes] = *waiting_[i].begin();
    heads[i] = {.deadline = key.first, .id = key.second, .bytes = bytes};
  }
  return heads;
}

std::optional<TransferSchedule::Waiting> TransferSchedule::next() {
  const auto next = shares_.next(heads());
  if (!next) return std::nullopt;
  const Waiting granted{
      .kind = next->kind, .deadline = next->head.deadline, .bytes = next->head.bytes, .id = next->head.id};
  drop(granted);
  return granted;
}

void TransferSchedule::grant(const Waiting& waiting) {
  shares_.grant(waiting.kind, waiting.bytes, heads());
  drop(waiting);
}

void TransferSchedule::drop(const Waiting& waiting) {
  Transfers& transfers = of(waiting.kind);
  transfers.erase({waiting.deadline, waiting.id});
  if (transfers.empty()) shares_.forget(waiting.kind);
  --count_;
}

}  // namespace kvdrive
