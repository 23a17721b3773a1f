// SPDX-License-Identifier: Apache-2.0
// Reads around the page cache (O_DIRECT). Many are in flight, and their buffers are reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "storage/aligned_buffer.hpp"
#include "storage/async_transfers.hpp"
#include "storage/backing_file.hpp"

namespace kvdrive {

class DirectReads {
 public:
  static constexpr unsigned kMostInFlight = 128;
  static constexpr std::size_t kBufferBytes = 1 << 20;  // the largest read
  static constexpr std::size_t kBuffers = 16;           // buffers kept for reuse

  struct Counters {
    std::uint64_t reads = 0;
    std::uint64_t bytes = 0;
    std::map<std::uint64_t, std::uint64_t> sizes;  // number of reads by their size in bytes
  };

  // Reads that end in one common wait.
  struct Batch {
    unsigned in_flight = 0;
    int error = 0;  // the last errno
  };

  // Memory that a read fills, and the batch that waits for it.
  struct Part {
    std::span<std::byte> to;
    Batch* batch;
  };

  explicit DirectReads(const BackingFile& file) : file_(file) { transfers_.take_turns(DiskQueue::of(file.direct())); }

  // Reads whole pages into page-aligned memory. The read begins with the next `submit` or `wait`. Memory and batch must
  // live until `wait` has returned.
  void start(std::uint64_t offset, std::span<std::byte> to, Batch& batch) {
    const Part part{to, &batch};
    start(offset, std::span(&part, 1));
  }
  // The same for pages that lie one after the other in the file and anywhere in memory.
  void start(std::uint64_t offset, std::span<const Part> parts);
  void submit() { transfers_.submit(); }
  void wait(const Batch& batch);

  // Takes a buffer of kBufferBytes with undefined contents; `give` returns it.
  AlignedBuffer take();
  void give(AlignedBuffer buffer);

  const Counters& counters() const { return counters_; }
  bool around_cache() const { return file_.has_direct(); }
  bool asynchronous() const { return transfers_.asynchronous(); }

 private:
  const BackingFile& file_;
  AsyncTransfers transfers_{kMostInFlight};
  std::vector<AlignedBuffer> free_;
  Counters counters_;
};

}  // namespace kvdrive
