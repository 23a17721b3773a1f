// SPDX-License-Identifier: Apache-2.0
// The memory that all connections of a target share, for command data that arrive and for answers that leave.
//
// The pool counts bytes and never allocates. Half of it is divided among as many connections as there may be: each has
// a share that no other can take. The rest is common. A host may have as much of it as it leaves free, so that N hosts
// which give nothing back leave an (N + 1)th one its part. Requests that do not fit wait in a line: the host with the
// least of the common part first, then in order of arrival. Bytes that have arrived already (completions, the beginning
// of a PDU) are counted without asking.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <utility>

namespace kvdrive::tcp {

class BufferPool {
 public:
  // What all connections of a host have of the common part.
  struct Host {
    std::uint64_t common_bytes = 0;
  };

  // The bytes of one connection. The pool must outlive it.
  class Account {
   public:
    explicit Account(BufferPool& pool) : pool_(pool) {}
    Account(const Account&) = delete;
    Account& operator=(const Account&) = delete;
    ~Account();

    // From now on the connection belongs to this host. At first it is a host of its own.
    void belong_to(std::shared_ptr<Host> host);
    // Asks for bytes. If there is no room, the connection keeps a place in the line until it gets them or leaves.
    bool take(std::uint64_t bytes);
    void give(std::uint64_t bytes);
    void leave_line();
    // The number of bytes that came without asking.
    void set_unasked(std::uint64_t bytes);

   private:
    friend class BufferPool;
    std::uint64_t common_of(std::uint64_t bytes) const;
    void set(std::uint64_t bytes);

    BufferPool& pool_;
    std::shared_ptr<Host> host_ = std::make_shared<Host>();
    std::uint64_t bytes_ = 0;  // asked for; the share covers the first of them
    std::uint64_t unasked_bytes_ = 0;
  };

  // Bytes of an account that are given back by the destructor.
  class Lease {
   public:
    Lease(Account& account, std::uint64_t bytes) : account_(&account), bytes_(bytes) {}
    Lease(Lease&& other) noexcept : account_(other.account_), bytes_(std::exchange(other.bytes_, 0)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(account_, other.account_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Lease() {
      if (bytes_ > 0) account_->give(bytes_);
    }

   private:
    Account* account_;
    std::uint64_t bytes_;
  };

  // `largest`: the most bytes that one request asks for; the common part has room for them.
  BufferPool(std::uint64_t limit_bytes, std::uint64_t largest, std::uint32_t connections);
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // True if no more data should be let in.
  bool full() const { return used_bytes_ >= limit_bytes_; }
  // True if the first request in the line would fit now.
  bool can_serve() const;
  std::uint64_t limit_bytes() const { return limit_bytes_; }

  // May be read from every thread.
  std::uint64_t used_bytes() const { return used_bytes_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }
  std::uint64_t waits() const { return waits_; }  // requests that did not fit at once

 private:
  struct Waiting {
    Account* who;
    std::uint64_t bytes;
  };
  // True if the connection's share has room, or its host would have no more of the common part than it leaves free. A
  // host that has nothing of it may take all that is free.
  bool fits(const Account& who, std::uint64_t bytes) const;
  std::list<Waiting>::const_iterator first_in_line() const;
  void use(std::uint64_t more, std::uint64_t less);

  const std::uint64_t limit_bytes_, common_bytes_, share_bytes_;
  std::uint64_t common_used_ = 0;
  std::list<Waiting> line_{};  // in order of arrival
  std::atomic<std::uint64_t> used_bytes_ = 0, peak_bytes_ = 0, waits_ = 0;
};

}  // namespace kvdrive::tcp
