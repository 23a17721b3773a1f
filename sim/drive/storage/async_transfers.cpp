// SPDX-License-Identifier: Apache-2.0
#include "storage/async_transfers.hpp"

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

AsyncTransfers::AsyncTransfers(unsigned most_in_flight) : transfers_(most_in_flight) {
  io_uring_params params{};
  ring_ = static_cast<int>(::syscall(SYS_io_uring_setup, most_in_flight, &params));
  if (ring_ < 0) return;
  shared_bytes_ = std::max<std::size_t>(params.sq_off.array + params.sq_entries * sizeof(std::uint32_t),
                                        params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
  entries_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
  const bool one_map = (params.features & IORING_FEAT_SINGLE_MMAP) != 0;
  const auto map = [this](std::size_t bytes, off_t what) {
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring_, what);
  };
  void* shared = one_map ? map(shared_bytes_, IORING_OFF_SQ_RING) : MAP_FAILED;
  void* entries = one_map ? map(entries_bytes_, IORING_OFF_SQES) : MAP_FAILED;
  if (shared == MAP_FAILED || entries == MAP_FAILED) {
    if (shared != MAP_FAILED) ::munmap(shared, shared_bytes_);
    ::close(std::exchange(ring_, -1));
    return;
  }
  shared_ = static_cast<std::byte*>(shared);
  entries_ = static_cast<io_uring_sqe*>(entries);
  completions_ = reinterpret_cast<io_uring_cqe*>(shared_ + params.cq_off.cqes);
  sq_tail_ = params.sq_off.tail;
  sq_mask_ = params.sq_off.ring_mask;
  sq_array_ = params.sq_off.array;
  cq_head_ = params.cq_off.head;
  cq_tail_ = params.cq_off.tail;
  cq_mask_ = params.cq_off.ring_mask;
}

AsyncTransfers::~AsyncTransfers() {
  for (Transfer& transfer : transfers_) transfer.done = [](int) {};
  try {
    wait(0);
  } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): closing the ring ends the transfers
  }
  if (ring_ < 0) return;
  ::munmap(shared_, shared_bytes_);
  ::munmap(entries_, entries_bytes_);
  ::close(ring_);
}

void AsyncTransfers::start(Way way, int file, std::uint64_t offset, std::span<const iovec> parts, Done done) {
  std::uint64_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  if (ring_ < 0) {
    const auto call = way == Way::kRead ? &::preadv : &::pwritev;
    const ssize_t moved = call(file, parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(offset));
    const int error = moved < 0 ? errno : static_cast<std::uint64_t>(moved) == bytes ? 0 : EIO;
    done(error);
    return;
  }
  // If the ring is full, a read waits until a quarter of the ring is free, so that later reads reach the kernel
  // together again.
  if (in_flight_ == transfers_.size()) wait(in_flight_ - (way == Way::kRead ? in_flight_ / 4 : 0) - 1);
  const auto free = std::ranges::find(transfers_, false, &Transfer::busy);
  *free = {{parts.begin(), parts.end()}, bytes, std::move(done), true};
  ++in_flight_;
  queue(way, static_cast<unsigned>(free - transfers_.begin()), file, offset);
}

void AsyncTransfers::queue(Way way, unsigned slot, int file, std::uint64_t offset) {
  const std::uint32_t tail = word(sq_tail_).load(std::memory_order_relaxed);
  const std::uint32_t index = tail & word(sq_mask_).load(std::memory_order_relaxed);
  io_uring_sqe& entry = entries_[index];
  std::memset(&entry, 0, sizeof entry);
  entry.opcode = way == Way::kRead ? IORING_OP_READV : IORING_OP_WRITEV;
  entry.fd = file;
  entry.off = offset;
  entry.addr = reinterpret_cast<std::uint64_t>(transfers_[slot].parts.data());
  entry.len = static_cast<std::uint32_t>(transfers_[slot].parts.size());
  entry.user_data = slot;
  word(sq_array_ + index * std::uint32_t{sizeof(std::uint32_t)}).store(index, std::memory_order_relaxed);
  word(sq_tail_).store(tail + 1, std::memory_order_release);
  ++queued_;
}

// Passes queued transfers to the kernel, then waits until `wait_for` transfers have ended.
void AsyncTransfers::enter(unsigned wait_for) {
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

void AsyncTransfers::submit() {
  if (queued_ > 0) enter(0);
}

void AsyncTransfers::wait(unsigned most) {
  submit();
  while (in_flight_ > 0) {
    std::uint32_t head = word(cq_head_).load(std::memory_order_relaxed);
    if (head == word(cq_tail_).load(std::memory_order_acquire)) {
      if (in_flight_ <= most) return;
      enter(1);
      continue;
    }
    const io_uring_cqe& completion = completions_[head & word(cq_mask_).load(std::memory_order_relaxed)];
    Transfer& transfer = transfers_[completion.user_data];
    const int error = completion.res < 0                                             ? -completion.res
                      : static_cast<std::uint64_t>(completion.res) == transfer.bytes ? 0
                                                                                     : EIO;
    word(cq_head_).store(head + 1, std::memory_order_release);
    const Done done = std::move(transfer.done);
    transfer.busy = false;
    --in_flight_;
    done(error);
  }
}

}  // namespace kvdrive
