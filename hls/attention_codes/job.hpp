// SPDX-License-Identifier: Apache-2.0
// The descriptor of a job over codes: an EXACT or PARTIAL AttentionJob whose `k` and `v` are codes of `r` bits. `rows`
// and `v_sum`, which these modes do not use otherwise, are the step bytes of K and of V (docs/jobs.md, Codes in 8 and
// 4 bits).
#pragma once

#include "attention/open.hpp"

namespace kvdrive {
namespace attention_codes {

using attention::Descriptor;
using attention::ExactJob;
using attention::Sizes;
using attention::status_t;

// How codes of kBits bits lie in memory, 8 or 4. A part is 32 numbers of a row that share a step.
template <int kBits>
struct Format {
  static_assert(kBits == 8 || kBits == 4, "a code has 8 or 4 bits");
  static constexpr int kParts = abi::kBeatBits / (kBits * abi::kLanes);  // parts in a beat of codes
  static constexpr int kBeatNumbers = kParts * abi::kLanes;              // numbers of a beat
  static constexpr int kPartStepBytes = kBits == 8 ? 1 : 2;              // step bytes of a part
  static constexpr int kStepBytes = kParts * kPartStepBytes;             // step bytes of a beat of codes
  static constexpr int kWordBeats = abi::kBeatBytes / kStepBytes;        // beats of codes for a beat of step bytes
};

inline ap_uint<58> k_steps(const ExactJob& job) { return job.rows; }
inline ap_uint<58> v_steps(const ExactJob& job) { return job.v_sum; }

// Beats of step bytes of K, and of V.
template <int kBits>
ap_uint<22> step_beats(const ExactJob& job) {
#pragma HLS INLINE
  constexpr int kWordBeats = Format<kBits>::kWordBeats;
  return (job.k_beats + (kWordBeats - 1)) / kWordBeats;
}

// True if two rows share a beat: 64 codes of 4 bits. Each passes through the lower half of the multipliers.
template <int kBits>
bool half_beats(const ExactJob& job) {
#pragma HLS INLINE
  return kBits == 4 && job.row_beats == Format<kBits>::kParts / 2;
}

// Parts of a token in a beat of codes.
template <int kBits>
int token_parts(const ExactJob& job) {
#pragma HLS INLINE
  constexpr int kParts = Format<kBits>::kParts;
  return half_beats<kBits>(job) ? kParts / 2 : kParts;
}

// The job as the stages behind the multipliers see it: each part of a beat belongs to a head of its own.
template <int kBits>
ExactJob of_parts(ExactJob job) {
#pragma HLS INLINE
  constexpr int kParts = Format<kBits>::kParts;
  const bool half = half_beats<kBits>(job);
  job.head_dim = half ? job.head_dim / (kParts / 2) : job.head_dim / kParts;
  job.row_beats = half ? job.row_beats / (kParts / 2) : job.row_beats / kParts;
  return job;
}

// The checks that jobs over binary16 numbers do not have.
template <int kBits>
status_t check_codes(const Descriptor& d, ap_uint<64> memory_beats) {
#pragma HLS INLINE
  const ap_uint<57> step_bytes = d.tokens * ap_uint<12>(d.head_dim / abi::kLanes * Format<kBits>::kPartStepBytes);
  status_t status = 0;
  const bool half = kBits == 4 && d.head_dim == Format<kBits>::kBeatNumbers / 2;
  if (d.head_dim % Format<kBits>::kBeatNumbers != 0 && !half) status |= abi::kBadHeadDim;
  if (d.r != kBits) status |= abi::kBadR;
  status |= attention::check_array(d.rows, step_bytes, memory_beats);
  status |= attention::check_array(d.v_sum, step_bytes, memory_beats);
  return status;
}

// Reads and checks the descriptor.
template <int G, int kBits>
status_t open_codes(const beat_t* io, ap_uint<64> address, ap_uint<64> memory_beats, ExactJob& job) {
#pragma HLS INLINE
  status_t status = attention::check_array(address, sizeof(abi::AttentionJob), memory_beats);
  if (status != 0) return status;
  beat_t beats[2];
  attention::load_block(io, address / abi::kBeatBytes, beats);
  const Descriptor descriptor = attention::decode(beats[0], beats[1]);
  Sizes sizes = attention::sizes_of<false>(descriptor);
  sizes.k /= 16 / kBits;  // codes in place of binary16 numbers
  job = attention::to_job<false>(descriptor, sizes);
  if (kBits == 4) job.k_beats = (sizes.k + abi::kBeatBytes - 1) / abi::kBeatBytes;  // rows may end within a beat
  status = attention::check<false>(descriptor, sizes, G, memory_beats);
  if (descriptor.mode <= abi::kPartial) status |= check_codes<kBits>(descriptor, memory_beats);
  return status;
}

}  // namespace attention_codes
}  // namespace kvdrive
