// SPDX-License-Identifier: Apache-2.0
#include "storage/direct_reads.hpp"

#include <sys/uio.h>

#include <utility>

namespace kvdrive {

void DirectReads::start(std::uint64_t offset, std::span<std::byte> to, Batch& batch) {
  const iovec part{to.data(), to.size()};
  ++batch.in_flight;
  transfers_.read(file_.direct(), offset, std::span(&part, 1), [&batch](int error) {
    --batch.in_flight;
    if (error != 0) batch.error = error;
  });
  ++counters_.reads;
  counters_.bytes += to.size();
  ++counters_.sizes[to.size()];
}

void DirectReads::wait(const Batch& batch) {
  while (batch.in_flight > 0) transfers_.wait(transfers_.in_flight() - 1);
}

AlignedBuffer DirectReads::take() {
  if (free_.empty()) {
    AlignedBuffer buffer;
    buffer.extend(kBufferBytes);
    return buffer;
  }
  AlignedBuffer buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

void DirectReads::give(AlignedBuffer buffer) {
  if (free_.size() < kBuffers) free_.push_back(std::move(buffer));
}

}  // namespace kvdrive
