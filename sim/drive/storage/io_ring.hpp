// SPDX-License-Identifier: Apache-2.0
// An io_uring: a queue of entries that the kernel works on, and one of completions.
//
// The ring is used through its three system calls. The library liburing would be one more package on each machine, in
// place of these few lines. Not safe to call concurrently, except for `wait`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

struct io_uring_sqe;
struct io_uring_cqe;

namespace kvdrive {

class IoRing {
 public:
  // Entries and completions of the usual size, or twice as large (Linux 5.19 and newer) for commands of devices.
  enum class Size : std::uint8_t { kUsual, kDouble };

  // `entries`: how many may be queued together. A kernel that provides no such ring leaves it closed.
  explicit IoRing(unsigned entries, Size size = Size::kUsual);
  IoRing(const IoRing&) = delete;
  IoRing& operator=(const IoRing&) = delete;
  ~IoRing();

  bool is_open() const { return ring_ >= 0; }
  // Why the ring is closed: an errno, or 0.
  int error() const { return error_; }

  // The next entry, zeroed. It is queued at once, and passed to the kernel by `enter`.
  io_uring_sqe& queue();
  // Passes queued entries to the kernel, then waits for `wait_for` completions. Throws std::system_error.
  void enter(unsigned wait_for);
  // Waits for a completion. Meanwhile another thread may call `queue` and `enter`. Throws std::system_error.
  void wait() const;
  unsigned queued() const { return queued_; }  // entries that the kernel has not received yet

  // The oldest completion, until `pop`; null if there is none.
  const io_uring_cqe* front() const;
  void pop();

 private:
  using Word = std::atomic_ref<std::uint32_t>;

  Word word(std::uint32_t offset) const { return Word(*reinterpret_cast<std::uint32_t*>(shared_ + offset)); }

  const std::size_t entry_bytes_, completion_bytes_;
  int ring_ = -1;
  int error_ = 0;
  std::byte* shared_ = nullptr;  // the words of both queues, and the completions
  std::size_t shared_bytes_ = 0;
  std::byte* entries_ = nullptr;
  std::size_t entries_bytes_ = 0;
  const std::byte* completions_ = nullptr;
  std::uint32_t sq_tail_ = 0, sq_mask_ = 0, sq_array_ = 0, cq_head_ = 0, cq_tail_ = 0, cq_mask_ = 0;  // byte offsets
  unsigned queued_ = 0;
};

}  // namespace kvdrive
