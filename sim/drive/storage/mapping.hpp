// SPDX-License-Identifier: Apache-2.0
// A part of a file, mapped as read-only memory through the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace kvdrive {

class Mapping {
 public:
  // Throws std::system_error. `offset` is a multiple of the system's page size. The descriptor must stay open.
  Mapping(int file, std::uint64_t offset, std::uint64_t bytes);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  const std::byte* data() const { return data_; }

  // Brings pages in from the disk, so that reading the memory cannot fail. Throws std::system_error when the disk
  // cannot read them. Needs no space on the disk: where a file system in memory has no page left for a hole, the memory
  // shows zeros instead of the file. Not safe to call from two threads at once.
  void fetch(std::uint64_t offset, std::uint64_t bytes) const;
  // True if all of the range was fetched recently. Not safe to call concurrently with `fetch`.
  bool fetched(std::uint64_t offset, std::uint64_t bytes) const;
  // Shows the file again where `fetch` replaced it by zeros: bytes were written there. Not safe to call concurrently
  // with `fetch`. Throws std::system_error.
  void show_written(std::uint64_t offset, std::uint64_t bytes);
  // Asks the disk for a range and does not wait.
  void expect(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  bool resident(std::uint64_t at, std::uint64_t next) const;
  void populate(std::uint64_t at, std::uint64_t next, std::uint64_t end) const;
  bool populated(std::uint64_t at, std::uint64_t next) const;
  void show_zeros(std::uint64_t at, std::uint64_t next) const;

  const int file_;
  const std::uint64_t offset_;
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  mutable std::set<std::uint64_t> zeros_;       // offsets of the pages that show zeros instead of the file
  mutable std::vector<std::uint32_t> fetched_;  // per piece: the tick in which the whole piece was last fetched
};

}  // namespace kvdrive
