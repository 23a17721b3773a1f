// SPDX-License-Identifier: Apache-2.0
// The order in which the core's two passes visit beats: block of tokens, chunk of a row, token of the block.
#pragma once

#include "attention/job.hpp"
#include "gemv/transpose.hpp"

namespace kvdrive::attention {

struct Pass {
  bool scoring;
  ap_uint<22> beats;
  ap_uint<18> tokens;
  ap_uint<4> chunks;        // beats of a token
  ap_uint<6> block_tokens;  // 1, or 32 out of the transposer
};

inline Pass scoring_pass(const Job& job) {
#pragma HLS INLINE
  if (!chooses_tokens(job)) return {true, job.k_beats, job.tokens, job.row_beats, 1};
  const int beats = abi::kLanes * squares_of(job.tokens) * squares_of(job.r);
  return {true, beats, job.tokens, squares_of(job.r), abi::kLanes};
}

inline Pass weighing_pass(const Job& job) {
#pragma HLS INLINE
  if (chooses_tokens(job)) return {false, 0, 0, 1, 1};
  const ap_uint<18> tokens = job.tokens + job.tail_tokens;
  return {false, job.k_beats + job.tail_v_beats, tokens, job.row_beats, 1};
}

// What passes through the transposer: the beats of both passes.
inline int core_beats(const Job& job) {
#pragma HLS INLINE
  return int(scoring_pass(job).beats) + int(weighing_pass(job).beats);
}

struct Position {
  ap_uint<18> base;  // first token of the block
  ap_uint<5> inner;
  ap_uint<4> chunk;
};

inline Position advance(Position at, const Pass& pass) {
#pragma HLS INLINE
  const bool chunk_ends = at.inner == pass.block_tokens - 1;
  const bool block_ends = chunk_ends && at.chunk == pass.chunks - 1;
  at.inner = chunk_ends ? ap_uint<5>(0) : ap_uint<5>(at.inner + 1);
  if (block_ends) {
    at.chunk = 0;
    at.base += pass.block_tokens;
  } else if (chunk_ends) {
    ++at.chunk;
  }
  return at;
}

}  // namespace kvdrive::attention
