// SPDX-License-Identifier: Apache-2.0
// The memory that all connections of a target share, for command data that arrive and for answers that leave.
//
// The pool counts bytes and never allocates. A connection must ask before it lets data come; requests that do not fit
// wait in order of arrival. Bytes that have arrived already (completions, the beginning of a PDU) are counted without
// asking.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

namespace kvdrive::tcp {

class BufferPool {
 public:
  // Bytes that are counted until the lease ends. The pool must outlive it.
  class Lease {
   public:
    explicit Lease(BufferPool& pool) : pool_(&pool) {}
    Lease(Lease&& other) noexcept : pool_(other.pool_), bytes_(std::exchange(other.bytes_, 0)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Lease() { set(0); }
    std::uint64_t bytes() const { return bytes_; }
    // Changes the count to `bytes`, whatever the limit.
    void set(std::uint64_t bytes);

   private:
    BufferPool* pool_;
    std::uint64_t bytes_ = 0;
  };

  explicit BufferPool(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Asks for `bytes`. If it returns no lease, `who` keeps a place in the line until it gets its bytes or leaves.
  std::optional<Lease> take(const void* who, std::uint64_t bytes);
  void leave_line(const void* who);

  // True if no more data should be let in.
  bool full() const { return used_bytes_ >= limit_bytes_; }
  // True if the first request in the line would fit now.
  bool can_serve() const { return !line_.empty() && fits(line_.front().bytes); }
  std::uint64_t limit_bytes() const { return limit_bytes_; }

  // May be read from every thread.
  std::uint64_t used_bytes() const { return used_bytes_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }
  std::uint64_t waits() const { return waits_; }  // requests that did not fit at once

 private:
  struct Waiting {
    const void* who;
    std::uint64_t bytes;
  };
  bool fits(std::uint64_t bytes) const { return used_bytes_ + bytes <= limit_bytes_; }

  const std::uint64_t limit_bytes_;
  std::deque<Waiting> line_{};
  std::atomic<std::uint64_t> used_bytes_ = 0, peak_bytes_ = 0, waits_ = 0;
};

}  // namespace kvdrive::tcp
