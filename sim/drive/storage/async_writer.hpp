// SPDX-License-Identifier: Apache-2.0
// Large writes that go on while the caller works: an io_uring, or plain calls where the kernel grants none.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

struct io_uring_sqe;
struct io_uring_cqe;

namespace kvdrive {

class AsyncWriter {
 public:
  static constexpr unsigned kMostInFlight = 16;

  // Gets 0 or an errno; a short write counts as EIO.
  using Done = std::function<void(int error)>;

  AsyncWriter();
  AsyncWriter(const AsyncWriter&) = delete;
  AsyncWriter& operator=(const AsyncWriter&) = delete;
  // Waits for what is in flight, whose `done` is not called any more.
  ~AsyncWriter();

  // The memory that `parts` name stays as it is until `done` was called: within this call or a later one.
  void write(int file, std::uint64_t offset, std::span<const iovec> parts, Done done);

  // Calls `done` of the writes that ended; waits until at most `most` are in flight.
  void wait(unsigned most);

  unsigned in_flight() const { return in_flight_; }
  bool asynchronous() const { return ring_ >= 0; }

 private:
  struct Write {
    std::vector<iovec> parts;
    std::uint64_t bytes = 0;
    Done done;
    bool busy = false;
  };
  using Word = std::atomic_ref<std::uint32_t>;

  Word word(std::uint32_t offset) const { return Word(*reinterpret_cast<std::uint32_t*>(shared_ + offset)); }
  void submit(unsigned slot, int file, std::uint64_t offset);
  void enter(unsigned submit, unsigned wait_for) const;

  int ring_ = -1;
  std::byte* shared_ = nullptr;  // both queues' words
  std::size_t shared_bytes_ = 0;
  io_uring_sqe* entries_ = nullptr;
  std::size_t entries_bytes_ = 0;
  io_uring_cqe* completions_ = nullptr;
  std::uint32_t sq_tail_ = 0, sq_mask_ = 0, sq_array_ = 0, cq_head_ = 0, cq_tail_ = 0, cq_mask_ = 0;  // offsets
  std::vector<Write> writes_{kMostInFlight};
  unsigned in_flight_ = 0;
};

}  // namespace kvdrive
