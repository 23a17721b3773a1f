// SPDX-License-Identifier: Apache-2.0
#include "storage/direct_reads.hpp"

#include <sys/uio.h>

#include <utility>
#include <vector>

namespace kvdrive {

void DirectReads::start(std::uint64_t offset, std::span<const Part> parts) {
  std::vector<iovec> memory;
  std::vector<Batch*> batches;
  std::uint64_t bytes = 0;
  for (const Part& part : parts) {
    memory.push_back({part.to.data(), part.to.size()});
    batches.push_back(part.batch);
    ++part.batch->in_flight;
    bytes += part.to.size();
  }
  transfers_.read(file_.direct(), offset, memory, [batches = std::move(batches)](int error) {
    for (Batch* const batch : batches) {
      --batch->in_flight;
      if (error != 0) batch->error = error;
    }
  });
  ++counters_.reads;
  counters_.bytes += bytes;
  ++counters_.sizes[bytes];
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
