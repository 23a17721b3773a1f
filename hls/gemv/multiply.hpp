// SPDX-License-Identifier: Apache-2.0
// The multipliers of one query head, 32 of them, for q.k and p.v alike; behind them come the adder tree of
// common/dot.hpp or the accumulators.
#pragma once

#include "common/dot.hpp"
#include "common/exp2.hpp"
#include "common/stream.hpp"

namespace kvdrive {

constexpr int kMaxChunks = abi::kMaxHeadDim / abi::kLanes;  // beats of a token

// The query, unpacked; false if it holds an Inf or NaN.
template <int kGroup>
inline bool load_query(Stream<beat_t>& operands, int chunks, HalfParts query[kGroup][abi::kLanes][kMaxChunks]) {
#pragma HLS INLINE
  bool finite = true;
load_heads:
  for (int head = 0; head < kGroup; ++head) {
  load_query:
    for (int chunk = 0; chunk < chunks; ++chunk) {
#pragma HLS PIPELINE II = 1
      HalfParts parts[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = parts complete
      const bool clean = unpack_lanes(operands.read(), parts);
      finite = finite && clean;
      for (int h = 0; h < kGroup; ++h) {
#pragma HLS UNROLL
        for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
          if (h == head) query[h][l][chunk] = parts[l];
        }
      }
    }
  }
  return finite;
}

// One beat times the query, or times the probability of its token.
inline void multiply_lanes(bool accumulating, Probability p, const HalfParts query[abi::kLanes][kMaxChunks], int chunk,
                           const HalfParts parts[abi::kLanes], Term terms[abi::kLanes]) {
#pragma HLS INLINE
  for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
    terms[l] = multiply(accumulating ? to_operand(p) : to_operand(query[l][chunk]), parts[l]);
  }
}

}  // namespace kvdrive
