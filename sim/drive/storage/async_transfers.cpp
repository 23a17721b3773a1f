// SPDX-License-Identifier: Apache-2.0
#include "storage/async_transfers.hpp"

#include <linux/io_uring.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace kvdrive {

AsyncTransfers::AsyncTransfers(unsigned most_in_flight) : transfers_(most_in_flight), ring_(most_in_flight) {}

AsyncTransfers::~AsyncTransfers() {
  for (Transfer& transfer : transfers_) transfer.done = [](int) {};
  try {
    wait(0);
  } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): closing the ring ends the transfers
  }
}

void AsyncTransfers::start(Way way, int file, std::uint64_t offset, std::span<const iovec> parts, Done done) {
  std::uint64_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  if (!ring_.is_open()) {
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
  io_uring_sqe& entry = ring_.queue();
  entry.opcode = way == Way::kRead ? IORING_OP_READV : IORING_OP_WRITEV;
  entry.fd = file;
  entry.off = offset;
  entry.addr = reinterpret_cast<std::uint64_t>(transfers_[slot].parts.data());
  entry.len = static_cast<std::uint32_t>(transfers_[slot].parts.size());
  entry.user_data = slot;
}

void AsyncTransfers::submit() {
  if (ring_.queued() > 0) ring_.enter(0);
}

void AsyncTransfers::wait(unsigned most) {
  submit();
  while (in_flight_ > 0) {
    const io_uring_cqe* const completion = ring_.front();
    if (completion == nullptr) {
      if (in_flight_ <= most) return;
      ring_.enter(1);
      continue;
    }
    Transfer& transfer = transfers_[completion->user_data];
    const int result = completion->res;
    const int error = result < 0 ? -result : static_cast<std::uint64_t>(result) == transfer.bytes ? 0 : EIO;
    ring_.pop();
    const Done done = std::move(transfer.done);
    transfer.busy = false;
    --in_flight_;
    done(error);
  }
}

}  // namespace kvdrive
