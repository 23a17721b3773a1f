// SPDX-License-Identifier: Apache-2.0
// Asynchronous transfers of a file: an io_uring, or blocking calls if the kernel provides none. With other users of its
// disk in this process they take turns (disk_queue.hpp). One thread may use the object.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "storage/disk_queue.hpp"
#include "storage/io_ring.hpp"

namespace kvdrive {

class AsyncTransfers final : private DiskQueue::User {
 public:
  // Gets 0 or an errno; a short transfer counts as EIO.
  using Done = std::function<void(int error)>;

  explicit AsyncTransfers(unsigned most_in_flight);
  AsyncTransfers(const AsyncTransfers&) = delete;
  AsyncTransfers& operator=(const AsyncTransfers&) = delete;
  // Waits for transfers in flight. Their `done` is not called any more.
  ~AsyncTransfers();

  // Takes turns from now on. Precondition: nothing was transferred yet.
  void take_turns(std::shared_ptr<DiskQueue> disk) { disk_ = std::move(disk); }

  // The memory that `parts` name must stay unchanged until `done` was called: within this call or a later one.
  void write(int file, std::uint64_t offset, std::span<const iovec> parts, Done done) {
    start({.way = Way::kWrite, .file = file, .offset = offset, .kind = TransferKind::kBackground}, parts,
          std::move(done));
    submit();
  }
  // The read starts with the next `submit` or `wait`, because the kernel accepts many reads together for little more
  // than the cost of one.
  void read(int file, std::uint64_t offset, std::span<const iovec> parts, Done done,
            TransferKind kind = TransferKind::kAttention) {
    start({.way = Way::kRead, .file = file, .offset = offset, .kind = kind}, parts, std::move(done));
  }
  void submit();

  // Waits until at most `most` transfers are in flight, and calls `done` of all that have ended.
  void wait(unsigned most);

  unsigned in_flight() const { return in_flight_; }
  bool asynchronous() const { return ring_.is_open(); }

 private:
  enum class Way : std::uint8_t { kRead, kWrite };
  struct Place {
    Way way = Way::kRead;
    int file = -1;
    std::uint64_t offset = 0;
    TransferKind kind = TransferKind::kAttention;
  };
  struct Transfer {
    Place place;
    std::vector<iovec> parts;
    DiskQueue::Turn turn;
    Done done;
    bool busy = false;
  };

  void start(const Place& place, std::span<const iovec> parts, Done done);
  void begin(unsigned slot) override;

  std::shared_ptr<DiskQueue> disk_;
  std::vector<Transfer> transfers_;
  std::mutex mutex_;                 // of what other threads use in `begin`: the ring's entries, and `gathering_`
  bool gathering_ = false;           // true: the next `submit` passes the entries to the kernel
  IoRing ring_;                      // closed first: the kernel reads `transfers_`
  unsigned in_flight_ = 0;           // transfers that have not ended, whether or not the kernel has them
  std::atomic<unsigned> begun_ = 0;  // of these, those that the kernel has
};

}  // namespace kvdrive
