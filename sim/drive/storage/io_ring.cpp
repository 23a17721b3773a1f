// SPDX-License-Identifier: Apache-2.0
#include "storage/io_ring.hpp"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace kvdrive {

IoRing::IoRing(unsigned entries, Size size)
    : entry_bytes_(sizeof(io_uring_sqe) * (size == Size::kDouble ? 2 : 1)),
      completion_bytes_(sizeof(io_uring_cqe) * (size == Size::kDouble ? 2 : 1)) {
  io_uring_params params{};
  if (size == Size::kDouble) params.flags = IORING_SETUP_SQE128 | IORING_SETUP_CQE32;
  ring_ = static_cast<int>(::syscall(SYS_io_uring_setup, entries, &params));
  if (ring_ < 0) {
    error_ = errno;
    return;
  }
  shared_bytes_ = std::max<std::size_t>(params.sq_off.array + params.sq_entries * sizeof(std::uint32_t),
                                        params.cq_off.cqes + params.cq_entries * completion_bytes_);
  entries_bytes_ = params.sq_entries * entry_bytes_;
  const bool one_map = (params.features & IORING_FEAT_SINGLE_MMAP) != 0;
  const auto map = [this](std::size_t bytes, off_t what) {
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_, what);
  };
  void* shared = one_map ? map(shared_bytes_, IORING_OFF_SQ_RING) : MAP_FAILED;
  void* queue = one_map ? map(entries_bytes_, IORING_OFF_SQES) : MAP_FAILED;
  if (shared == MAP_FAILED || queue == MAP_FAILED) {
    error_ = one_map ? errno : ENOSYS;
    if (shared != MAP_FAILED) ::munmap(shared, shared_bytes_);
    ::close(std::exchange(ring_, -1));
    return;
  }
  shared_ = static_cast<std::byte*>(shared);
  entries_ = static_cast<std::byte*>(queue);
  completions_ = shared_ + params.cq_off.cqes;
  sq_tail_ = params.sq_off.tail;
  sq_mask_ = params.sq_off.ring_mask;
  sq_array_ = params.sq_off.array;
  cq_head_ = params.cq_off.head;
  cq_tail_ = params.cq_off.tail;
  cq_mask_ = params.cq_off.ring_mask;
}

IoRing::~IoRing() {
  if (ring_ < 0) return;
  ::munmap(shared_, shared_bytes_);
  ::munmap(entries_, entries_bytes_);
  ::close(ring_);
}

io_uring_sqe& IoRing::queue() {
  const std::uint32_t tail = word(sq_tail_).load(std::memory_order_relaxed);
  const std::uint32_t index = tail & word(sq_mask_).load(std::memory_order_relaxed);
  std::byte* const entry = entries_ + index * entry_bytes_;
  std::memset(entry, 0, entry_bytes_);
  word(sq_array_ + index * std::uint32_t{sizeof(std::uint32_t)}).store(index, std::memory_order_relaxed);
  word(sq_tail_).store(tail + 1, std::memory_order_release);  // the kernel reads entries in `enter` only
  ++queued_;
  return *reinterpret_cast<io_uring_sqe*>(entry);
}

void IoRing::enter(unsigned wait_for) {
  const unsigned flags = wait_for > 0 ? IORING_ENTER_GETEVENTS : 0;
  do {
    const long taken = ::syscall(SYS_io_uring_enter, ring_, queued_, wait_for, flags, nullptr, 0);
    if (taken >= 0) {
      queued_ -= static_cast<unsigned>(taken);
      if (wait_for > 0) return;
    } else if (errno != EINTR && errno != EAGAIN && errno != EBUSY) {
      throw std::system_error(errno, std::generic_category(), "io_uring_enter");
    }
  } while (queued_ > 0 || wait_for > 0);
}

void IoRing::wait() const {
  while (::syscall(SYS_io_uring_enter, ring_, 0, 1, IORING_ENTER_GETEVENTS, nullptr, 0) < 0) {
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "io_uring_enter");
  }
}

const io_uring_cqe* IoRing::front() const {
  const std::uint32_t head = word(cq_head_).load(std::memory_order_relaxed);
  if (head == word(cq_tail_).load(std::memory_order_acquire)) return nullptr;
  const std::uint32_t index = head & word(cq_mask_).load(std::memory_order_relaxed);
  return reinterpret_cast<const io_uring_cqe*>(completions_ + index * completion_bytes_);
}

void IoRing::pop() {
  const std::uint32_t head = word(cq_head_).load(std::memory_order_relaxed);
  word(cq_head_).store(head + 1, std::memory_order_release);
}

}  // namespace kvdrive
