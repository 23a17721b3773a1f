// SPDX-License-Identifier: Apache-2.0
#include "tcp/buffer_pool.hpp"

#include <algorithm>

namespace kvdrive::tcp {

BufferPool::BufferPool(std::uint64_t limit_bytes, std::uint64_t largest, std::uint32_t connections)
    : limit_bytes_(limit_bytes),
      common_bytes_(std::max(limit_bytes / 2, largest)),
      share_bytes_((limit_bytes - common_bytes_) / std::max(connections, 1u)) {}

BufferPool::Account::~Account() {
  leave_line();
  set(0);
  set_unasked(0);
}

std::uint64_t BufferPool::Account::common_of(std::uint64_t bytes) const {
  return bytes > pool_.share_bytes_ ? bytes - pool_.share_bytes_ : 0;
}

void BufferPool::Account::set(std::uint64_t bytes) {
  const std::uint64_t before = common_of(bytes_), after = common_of(bytes);
  host_->common_bytes = host_->common_bytes - before + after;
  pool_.common_used_ = pool_.common_used_ - before + after;
  pool_.use(bytes, bytes_);
  bytes_ = bytes;
}

void BufferPool::Account::belong_to(std::shared_ptr<Host> host) {
  const std::uint64_t common = common_of(bytes_);
  host_->common_bytes -= common;
  host_ = std::move(host);
  host_->common_bytes += common;
}

bool BufferPool::Account::take(std::uint64_t bytes) {
  auto& line = pool_.line_;
  const auto place = std::ranges::find(line, this, &Waiting::who);
  bool granted = common_of(bytes_ + bytes) == 0;  // its own share has room
  if (!granted && pool_.fits(*this, bytes)) {
    const auto first = pool_.first_in_line();
    granted = first == line.end() || first->who == this || host_->common_bytes < first->who->host_->common_bytes;
  }
  if (granted) {
    if (place != line.end()) line.erase(place);
    set(bytes_ + bytes);
  } else if (place != line.end()) {
    place->bytes = bytes;
  } else {
    line.push_back({this, bytes});
    ++pool_.waits_;
  }
  return granted;
}

void BufferPool::Account::give(std::uint64_t bytes) { set(bytes_ - bytes); }

void BufferPool::Account::leave_line() {
  std::erase_if(pool_.line_, [this](const Waiting& one) { return one.who == this; });
}

void BufferPool::Account::set_unasked(std::uint64_t bytes) {
  pool_.use(bytes, unasked_bytes_);
  unasked_bytes_ = bytes;
}

bool BufferPool::fits(const Account& who, std::uint64_t bytes) const {
  const std::uint64_t more = who.common_of(who.bytes_ + bytes) - who.common_of(who.bytes_);
  const std::uint64_t free = common_bytes_ - common_used_, held = who.host_->common_bytes;
  return more == 0 || (more <= free && (held == 0 || held + more <= free));
}

std::list<BufferPool::Waiting>::const_iterator BufferPool::first_in_line() const {
  return std::ranges::min_element(line_, {}, [](const Waiting& one) { return one.who->host_->common_bytes; });
}

bool BufferPool::can_serve() const {
  const auto first = first_in_line();
  return first != line_.end() && fits(*first->who, first->bytes);
}

void BufferPool::use(std::uint64_t more, std::uint64_t less) {
  used_bytes_ = used_bytes_ + more - less;
  peak_bytes_ = std::max<std::uint64_t>(peak_bytes_, used_bytes_);
}

}  // namespace kvdrive::tcp
