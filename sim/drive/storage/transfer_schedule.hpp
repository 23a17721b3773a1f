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

// What each kind is owed, and the choice between the first transfers of the kinds.
class TransferShares {
 public:
  struct Head {
    std::uint64_t deadline = 0;
    std::uint64_t id = 0;  // of equal deadlines the lowest number goes first
    std::uint64_t bytes = 0;
  };
  // The first transfer of each kind that can go now.
  using Heads = std::array<std::optional<Head>, kTransferKinds>;
  struct Granted {
    TransferKind kind = TransferKind::kAttention;
    Head head;
  };

  // Returns the transfer that goes now, and counts it as granted; nothing if there are no transfers. Only kinds with a
  // transfer are owed something for it.
  std::optional<Granted> next(const Heads& heads);
  // Counts so many bytes of a kind as granted, whose transfer is among `heads`.
  void grant(TransferKind kind, std::uint64_t bytes, const Heads& heads);
  // No transfers of this kind wait any more.
  void forget(TransferKind kind) { owed_[static_cast<std::size_t>(kind)] = 0; }

 private:
  std::array<std::uint64_t, kTransferKinds> owed_{};  // bytes times kWholeShare
};

class TransferSchedule {
 public:
  struct Waiting {
    TransferKind kind = TransferKind::kAttention;
    std::uint64_t deadline = 0;
    std::uint64_t bytes = 0;
    std::uint64_t id = 0;  // unique; of equal deadlines the lowest number goes first
  };

  void add(const Waiting& waiting) {
    of(waiting.kind).emplace(std::pair(waiting.deadline, waiting.id), waiting.bytes);
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
  using Transfers = std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t>;  // (deadline, id) to bytes

  Transfers& of(TransferKind kind) { return waiting_[static_cast<std::size_t>(kind)]; }
  TransferShares::Heads heads() const;

  std::array<Transfers, kTransferKinds> waiting_;
  TransferShares shares_;
  std::size_t count_ = 0;
};

}  // namespace kvdrive
