// SPDX-License-Identifier: Apache-2.0
#include "storage/transfer_schedule.hpp"

#include <algorithm>

namespace kvdrive {

std::optional<TransferKind> TransferShares::next(const Heads& heads) {
  const auto before = [](const Head& one, const Head& other) {
    return std::pair(one.deadline, one.id) < std::pair(other.deadline, other.id);
  };
  std::optional<std::size_t> earliest, owed;
  for (std::size_t i = 0; i < kTransferKinds; ++i) {
    if (!heads[i]) continue;
    if (!earliest || before(*heads[i], *heads[*earliest])) earliest = i;
    if (owed_[i] >= heads[i]->bytes * kWholeShare && (!owed || owed_[i] > owed_[*owed])) owed = i;
  }
  if (!earliest) return std::nullopt;
  const auto chosen = static_cast<TransferKind>(owed.value_or(*earliest));
  grant(chosen, heads);
  return chosen;
}

void TransferShares::grant(TransferKind kind, const Heads& heads) {
  const auto granted = static_cast<std::size_t>(kind);
  const std::uint64_t bytes = heads[granted]->bytes;
  for (std::size_t i = 0; i < kTransferKinds; ++i) {
    if (heads[i]) owed_[i] += bytes * kTransferShares[i];
  }
  owed_[granted] -= std::min(owed_[granted], bytes * kWholeShare);
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
  const TransferShares::Heads found = heads();
  const auto kind = shares_.next(found);
  if (!kind) return std::nullopt;
  const TransferShares::Head& head = *found[static_cast<std::size_t>(*kind)];
  const Waiting granted{.kind = *kind, .deadline = head.deadline, .bytes = head.bytes, .id = head.id};
  drop(granted);
  return granted;
}

void TransferSchedule::grant(const Waiting& waiting) {
  TransferShares::Heads found = heads();
  found[static_cast<std::size_t>(waiting.kind)]->bytes = waiting.bytes;
  shares_.grant(waiting.kind, found);
  drop(waiting);
}

void TransferSchedule::drop(const Waiting& waiting) {
  Transfers& transfers = of(waiting.kind);
  transfers.erase({waiting.deadline, waiting.id});
  if (transfers.empty()) shares_.forget(waiting.kind);
  --count_;
}

}  // namespace kvdrive
