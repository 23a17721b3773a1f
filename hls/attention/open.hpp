// SPDX-License-Identifier: Apache-2.0
// The way into a job, for both engines.
#pragma once

#include "attention/block.hpp"
#include "attention/job.hpp"

namespace kvdrive {
namespace attention {

// Reads and checks the descriptor.
template <int G, bool kSparf>
status_t open_job(const beat_t* io, ap_uint<64> address, ap_uint<64> memory_beats, Job<kSparf>& job) {
#pragma HLS INLINE
  const status_t status = check_array(address, sizeof(abi::AttentionJob), memory_beats);
  if (status != 0) return status;
  beat_t beats[2];
  load_block(io, address / abi::kBeatBytes, beats);
  const Descriptor descriptor = decode(beats[0], beats[1]);
  const Sizes sizes = sizes_of<kSparf>(descriptor);
  job = to_job<kSparf>(descriptor, sizes);
  return check<kSparf>(descriptor, sizes, G, memory_beats);
}

}  // namespace attention
}  // namespace kvdrive
