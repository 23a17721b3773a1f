// SPDX-License-Identifier: Apache-2.0
// Decides which of the waiting transfers of a flash goes next: the one with the earliest deadline, unless a kind of
// transfer is behind its share.
//
// While transfers of a kind wait, each grant adds its share of the bytes to what the kind is owed. A kind that is owed
// its whole next transfer goes first. The shares add up to less than one, so deadlines decide most of the time, and no
// kind waits for more than a bounded number of grants. A kind without waiting transfers saves nothing up. Time is any
// number that grows: real time of a disk, device time of a model.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace kvdrive {

enum class TransferKind : std::uint8_t {
  kAttention,   // K and V of the layer that is computed
  kWeights,     // experts and neurons of the layer that is computed
  kAhead,       // those of a later layer
  kBackground,  // writes
};

inline constexpr std::size_t kTransferKinds = 4;
inline constexpr std::array kTransferNames{"attention", "weights", "ahead", "background"};
// Guaranteed shares of the bytes, in sixteenths.
inline constexpr std::array<std::uint64_t, kTransferKinds> kTransferShares{4, 4, 2, 1};
inline constexpr std::uint64_t kWholeShare = 16;
// Nanoseconds from the request to the deadline.
inline constexpr std::array<std::uint64_t, kTransferKinds> kTransferPatience{0, 0, 5'000'000, 50'000'000};

class TransferSchedule {
 public:
  struct Waiting {
    TransferKind kind = TransferKind::kAttention;
    std::uint64_t deadline = 0;
    std::uint64_t bytes = 0;
    std::uint64_t id = 0;  // unique; of equal deadlines the lowest number goes first
  };

  void add(const Waiting& waiting) {
    of(waiting.kind).waiting.emplace(std::pair(waiting.deadline, waiting.id), waiting.bytes);
    ++count_;
  }

  // Removes and returns the transfer that goes next.
  std::optional<Waiting> next();
  // Removes a transfer that is not to go through `next`, and counts it as granted. Precondition: it waits.
  void grant(const Waiting& waiting);
  // Removes a transfer that is not wanted any more. Precondition: it waits.
  void drop(const Waiting& waiting);

  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }

 private:
  struct Kind {
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> waiting;  // (deadline, id) to bytes
    std::uint64_t owed = 0;                                                    // bytes times kWholeShare
  };

  Kind& of(TransferKind kind) { return kinds_[static_cast<std::size_t>(kind)]; }

  std::array<Kind, kTransferKinds> kinds_;
  std::size_t count_ = 0;
};

}  // namespace kvdrive
