// SPDX-License-Identifier: Apache-2.0
#include "storage/transfer_schedule.hpp"

#include <algorithm>

namespace kvdrive {

std::optional<TransferSchedule::Waiting> TransferSchedule::next() {
  std::optional<std::size_t> earliest, owed;
  for (std::size_t i = 0; i < kTransferKinds; ++i) {
    const Kind& kind = kinds_[i];
    if (kind.waiting.empty()) continue;
    const auto& head = *kind.waiting.begin();
    if (!earliest || head.first < kinds_[*earliest].waiting.begin()->first) earliest = i;
    if (kind.owed >= head.second * kWholeShare && (!owed || kind.owed > kinds_[*owed].owed)) owed = i;
  }
  if (!earliest) return std::nullopt;
  const std::size_t chosen = owed.value_or(*earliest);
  const auto& [key, bytes] = *kinds_[chosen].waiting.begin();
  const Waiting granted{
      .kind = static_cast<TransferKind>(chosen), .deadline = key.first, .bytes = bytes, .id = key.second};
  grant(granted);
  return granted;
}

void TransferSchedule::grant(const Waiting& waiting) {
  for (std::size_t i = 0; i < kTransferKinds; ++i) {
    if (!kinds_[i].waiting.empty()) kinds_[i].owed += waiting.bytes * kTransferShares[i];
  }
  Kind& granted = of(waiting.kind);
  granted.owed -= std::min(granted.owed, waiting.bytes * kWholeShare);
  drop(waiting);
}

void TransferSchedule::drop(const Waiting& waiting) {
  Kind& kind = of(waiting.kind);
  kind.waiting.erase({waiting.deadline, waiting.id});
  if (kind.waiting.empty()) kind.owed = 0;
  --count_;
}

}  // namespace kvdrive
