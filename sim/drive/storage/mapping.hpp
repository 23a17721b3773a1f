// SPDX-License-Identifier: Apache-2.0
// A part of a file, mapped as read-only memory through the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvdrive {

class Mapping {
 public:
  Mapping() = default;
  // Throws std::system_error. `offset` is a multiple of the system's page size.
  Mapping(int file, std::uint64_t offset, std::uint64_t bytes);
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), fetched_(std::move(other.fetched_)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(fetched_, other.fetched_);
    return *this;
  }
  ~Mapping();

  const std::byte* data() const { return data_; }

  // Brings pages in from the disk, so that reading the memory cannot fail. Throws std::system_error when the disk
  // cannot read them. Not safe to call from two threads at once.
  void fetch(std::uint64_t offset, std::uint64_t bytes) const;
  // True if all of the range was fetched recently. Not safe to call concurrently with `fetch`.
  bool fetched(std::uint64_t offset, std::uint64_t bytes) const;
  // Asks the disk for a range and does not wait.
  void expect(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  bool resident(std::uint64_t at, std::uint64_t next) const;
  void populate(std::uint64_t at, std::uint64_t next, std::uint64_t end) const;

  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  mutable std::vector<std::uint32_t> fetched_;  // per piece: the tick in which the whole piece was last fetched
};

}  // namespace kvdrive
