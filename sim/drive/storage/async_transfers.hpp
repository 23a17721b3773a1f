// SPDX-License-Identifier: Apache-2.0
// Asynchronous transfers of a file: an io_uring, or blocking calls if the kernel provides none.
//
// The ring is used through its three system calls. The library liburing would be one more package on each machine, in
// place of the 60 lines that set up the ring, fill entries and read completions.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

struct io_uring_sqe;
struct io_uring_cqe;

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
  bool asynchronous() const { return ring_ >= 0; }

 private:
  enum class Way : std::uint8_t { kRead, kWrite };
  struct Transfer {
    std::vector<iovec> parts;
    std::uint64_t bytes = 0;
    Done done;
    bool busy = false;
  };
  using Word = std::atomic_ref<std::uint32_t>;

  Word word(std::uint32_t offset) const { return Word(*reinterpret_cast<std::uint32_t*>(shared_ + offset)); }
  void start(Way way, int file, std::uint64_t offset, std::span<const iovec> parts, Done done);
  void queue(Way way, unsigned slot, int file, std::uint64_t offset);
  void enter(unsigned wait_for);

  int ring_ = -1;
  std::byte* shared_ = nullptr;  // the words of both queues
  std::size_t shared_bytes_ = 0;
  io_uring_sqe* entries_ = nullptr;
  std::size_t entries_bytes_ = 0;
  io_uring_cqe* completions_ = nullptr;
  std::uint32_t sq_tail_ = 0, sq_mask_ = 0, sq_array_ = 0, cq_head_ = 0, cq_tail_ = 0, cq_mask_ = 0;  // byte offsets
  std::vector<Transfer> transfers_;
  unsigned in_flight_ = 0;
  unsigned queued_ = 0;  // transfers that the kernel has not received yet
};

}  // namespace kvdrive
