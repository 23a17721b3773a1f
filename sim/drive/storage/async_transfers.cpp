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
  if (disk_ != nullptr) disk_->leave(*this);
}

void AsyncTransfers::start(const Place& place, std::span<const iovec> parts, Done done) {
  std::uint64_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  if (!ring_.is_open()) {
    const auto call = place.way == Way::kRead ? &::preadv : &::pwritev;
    const ssize_t moved =
        call(place.file, parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(place.offset));
    const int error = moved < 0 ? errno : static_cast<std::uint64_t>(moved) == bytes ? 0 : EIO;
    done(error);
    return;
  }
  // If the ring is full, a read waits until a quarter of the ring is free, so that later reads reach the kernel
  // together again.
  if (in_flight_ == transfers_.size()) wait(in_flight_ - (place.way == Way::kRead ? in_flight_ / 4 : 0) - 1);
  const auto free = std::ranges::find(transfers_, false, &Transfer::busy);
  *free = {place, {parts.begin(), parts.end()}, {.kind = place.kind, .bytes = bytes}, std::move(done), true};
  ++in_flight_;
  {
    const std::lock_guard lock(mutex_);
    gathering_ = true;
  }
  const auto slot = static_cast<unsigned>(free - transfers_.begin());
  if (disk_ != nullptr) {
    disk_->add(*this, slot, free->turn);
  } else {
    begin(slot);
  }
}

void AsyncTransfers::begin(unsigned slot) {
  const Transfer& transfer = transfers_[slot];
  const std::lock_guard lock(mutex_);
  io_uring_sqe& entry = ring_.queue();
  entry.opcode = transfer.place.way == Way::kRead ? IORING_OP_READV : IORING_OP_WRITEV;
  entry.fd = transfer.place.file;
  entry.off = transfer.place.offset;
  entry.addr = reinterpret_cast<std::uint64_t>(transfer.parts.data());
  entry.len = static_cast<std::uint32_t>(transfer.parts.size());
  entry.user_data = slot;
  ++begun_;
  if (gathering_) return;
  try {
    ring_.enter(0);
  } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): `submit` tries again, in the thread concerned
  }
}

void AsyncTransfers::submit() {
  const std::lock_guard lock(mutex_);
  gathering_ = false;
  if (ring_.queued() > 0) ring_.enter(0);
}

void AsyncTransfers::wait(unsigned most) {
  submit();
  while (in_flight_ > 0) {
    const io_uring_cqe* const completion = ring_.front();
    if (completion == nullptr) {
      if (in_flight_ <= most) return;
      if (begun_ == 0) disk_->begin_one(*this);
      submit();
      ring_.wait();
      continue;
    }
    Transfer& transfer = transfers_[completion->user_data];
    const int result = completion->res;
    const int error = result < 0 ? -result : static_cast<std::uint64_t>(result) == transfer.turn.bytes ? 0 : EIO;
    ring_.pop();
    if (disk_ != nullptr) disk_->ended(*this, transfer.turn);
    const Done done = std::move(transfer.done);
    transfer.busy = false;
    --in_flight_;
    --begun_;
    done(error);
  }
}

}  // namespace kvdrive
