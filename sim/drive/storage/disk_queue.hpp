// SPDX-License-Identifier: Apache-2.0
// All transfers of this process with one disk: K and V, weights and writes take turns (transfer_schedule.hpp).
//
// Users that are alone are not held up. As soon as two have something to read, those reads that the kernel has are at
// most kRoomBytes, and the others wait here, where an urgent one can still overtake them. Safe to call concurrently.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "storage/transfer_schedule.hpp"

namespace kvdrive {

class DiskQueue {
 public:
  static constexpr std::uint64_t kRoomBytes = 16 << 20;

  // A transfer and its times. Must stay in place until `ended`.
  struct Turn {
    TransferKind kind = TransferKind::kAttention;
    std::uint64_t bytes = 0;
    std::uint64_t added_ns = 0, begun_ns = 0;  // CLOCK_MONOTONIC
  };

  // A ring of transfers.
  class User {
   public:
    // Passes a transfer to the kernel. Any thread that uses the queue may call this, with the queue locked.
    virtual void begin(unsigned slot) = 0;

   protected:
    ~User() = default;

   private:
    friend class DiskQueue;
    std::uint64_t waiting_ = 0;          // transfers
    std::uint64_t in_flight_bytes_ = 0;  // of reads
  };

  struct Counters {
    std::uint64_t transfers = 0, bytes = 0;
    std::uint64_t waited = 0;  // transfers that did not begin at once
    std::uint64_t waited_ns = 0, most_waited_ns = 0;
  };
  using ByKind = std::array<Counters, kTransferKinds>;

  // The queue of the disk that holds an open file. It exists as long as somebody uses it.
  static std::shared_ptr<DiskQueue> of(int file);

  // Begins the transfer in `slot`, at once or when it is its turn.
  void add(User& user, unsigned slot, Turn& turn);
  void ended(User& user, const Turn& turn);
  // Begins a transfer of a user that has none in flight, whatever others wait for.
  void begin_one(User& user);
  // Forgets the transfers of a user.
  void leave(User& user);

  ByKind counters() const;
  // Keeps the latest `events` transfers from now on; 0: none.
  void keep_trace(std::size_t events);
  // Writes them as Chrome trace events in microseconds of CLOCK_MONOTONIC, each kind on tracks of its own.
  void write_trace(std::ostream& out) const;

 private:
  struct Entry {
    User* user;
    unsigned slot;
    Turn* turn;
    TransferSchedule::Waiting waiting;
  };
  using Entries = std::map<std::uint64_t, Entry>;

  bool has_room() const { return busy_users_ < 2 || in_flight_bytes_ < kRoomBytes; }
  void begin_waiting();
  void begin_entry(Entries::iterator entry);
  void begin(User& user, unsigned slot, const Turn& turn);
  void count_busy(const User& user, bool was_busy);
  static bool busy(const User& user) { return user.waiting_ > 0 || user.in_flight_bytes_ > 0; }

  mutable std::mutex mutex_;
  TransferSchedule schedule_;
  Entries entries_;  // that wait
  std::uint64_t last_ = 0;
  std::uint64_t in_flight_bytes_ = 0;  // of reads
  unsigned busy_users_ = 0;
  ByKind counters_{};
  std::vector<std::pair<Turn, std::uint64_t>> events_;  // with the times at which they ended
  std::size_t events_kept_ = 0, events_added_ = 0;
};

}  // namespace kvdrive
