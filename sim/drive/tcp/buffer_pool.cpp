// SPDX-License-Identifier: Apache-2.0
#include "tcp/buffer_pool.hpp"

#include <algorithm>

namespace kvdrive::tcp {

void BufferPool::Lease::set(std::uint64_t bytes) {
  pool_->used_bytes_ = pool_->used_bytes_ - bytes_ + bytes;
  pool_->peak_bytes_ = std::max<std::uint64_t>(pool_->peak_bytes_, pool_->used_bytes_);
  bytes_ = bytes;
}

std::optional<BufferPool::Lease> BufferPool::take(const void* who, std::uint64_t bytes) {
  const auto place = std::ranges::find(line_, who, &Waiting::who);
  const bool first = line_.empty() || place == line_.begin();
  if (!first || !fits(bytes)) {
    if (place == line_.end()) {
      line_.push_back({who, bytes});
      ++waits_;
    } else {
      place->bytes = bytes;
    }
    return std::nullopt;
  }
  if (place != line_.end()) line_.erase(place);
  std::optional<Lease> lease(std::in_place, *this);
  lease->set(bytes);
  return lease;
}

void BufferPool::leave_line(const void* who) {
  std::erase_if(line_, [&](const Waiting& waiting) { return waiting.who == who; });
}

}  // namespace kvdrive::tcp
