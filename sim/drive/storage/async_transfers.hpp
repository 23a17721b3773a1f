// SPDX-License-Identifier: Apache-2.0
// Asynchronous transfers of a file: an io_uring, or blocking calls if the kernel provides none.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "storage/io_ring.hpp"

namespace kvdrive {

class AsyncTransfers {
 public:
  // Gets 0 or an errno; a short transfer counts as EIO.
  using Done = std::function<void(int error)>;

  explicit AsyncTransfers(unsigned most_in_flight);
  AsyncTransfers(const AsyncTransfers&) = delete;
  AsyncTransfers& operator=(const AsyncTransfers&) = delete;
  // Waits for transfers in flight. Their `done` is not called any more.
  ~AsyncTransfers();

  // The memory that `parts` name must stay unchanged until `done` was called: within this call or a later one.
  void write(int file, std::uint64_t offset, std::span<const iovec> parts, Done done) {
    start(Way::kWrite, file, offset, parts, std::move(done));
    submit();
  }
  // The read starts with the next `submit` or `wait`, because the kernel accepts many reads together for little more
  // than the cost of one.
  void read(int file, std::uint64_t offset, std::span<const iovec> parts, Done done) {
    start(Way::kRead, file, offset, parts, std::move(done));
  }
  void submit();

  // Waits until at most `most` transfers are in flight, and calls `done` of all that have ended.
  void wait(unsigned most);

  unsigned in_flight() const { return in_flight_; }
  bool asynchronous() const { return ring_.is_open(); }

 private:
  enum class Way : std::uint8_t { kRead, kWrite };
  struct Transfer {
    std::vector<iovec> parts;
    std::uint64_t bytes = 0;
    Done done;
    bool busy = false;
  };

  void start(Way way, int file, std::uint64_t offset, std::span<const iovec> parts, Done done);
  void queue(Way way, unsigned slot, int file, std::uint64_t offset);

  std::vector<Transfer> transfers_;
  IoRing ring_;  // closed first: the kernel reads `transfers_`
  unsigned in_flight_ = 0;
};

}  // namespace kvdrive
