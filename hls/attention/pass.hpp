// SPDX-License-Identifier: Apache-2.0
// The order in which the core's two passes visit beats: block of tokens, chunk of a row, token of the block.
#pragma once

#include "attention/job.hpp"
#include "gemv/transpose.hpp"

namespace kvdrive {
namespace attention {

struct Pass {
  bool scoring;
  bool paired;  // a beat holds two tokens, 32 apart
  ap_uint<22> beats;
  ap_uint<18> tokens;
  ap_uint<4> chunks;        // beats of a token
  ap_uint<6> block_tokens;  // 1, or 32 out of the transposer
};

// SPARF_TOKENS with few rows: two blocks share the lanes.
template <bool kSparf>
bool pairs_tokens(const Job<kSparf>& job) {
#pragma HLS INLINE
  return chooses_tokens(job) && job.r <= abi::kLanes / 2;
}

template <bool kSparf>
Pass scoring_pass(const Job<kSparf>& job) {
#pragma HLS INLINE
  if (!chooses_tokens(job)) return {true, false, job.k_beats, job.tokens, job.row_beats, 1};
  const bool paired = pairs_tokens(job);
  const ap_uint<13> blocks = squares_of(job.tokens);
  const ap_uint<22> squares = paired ? ap_uint<22>((blocks + 1) / 2) : ap_uint<22>(blocks * score_beats(job));
  return {true, paired, ap_uint<22>(squares * abi::kLanes), job.tokens, score_beats(job), abi::kLanes};
}

template <bool kSparf>
Pass weighing_pass(const Job<kSparf>& job) {
#pragma HLS INLINE
  if (chooses_tokens(job)) return {false, false, 0, 0, 1, 1};
  const ap_uint<18> tokens = job.tokens + job.inline_tokens;
  return {false, false, job.k_beats + job.inline_v_beats, tokens, job.row_beats, 1};
}

// The beats of both passes on their way through the transposer.
inline Squares squares_of(const SparfJob& job) {
#pragma HLS INLINE
  const int leaving = int(scoring_pass(job).beats) + int(weighing_pass(job).beats);
  if (!chooses_tokens(job)) return {false, 1, 1, leaving, leaving};
  const int padded = pairs_tokens(job) ? abi::kLanes / 2 : abi::kLanes * int(score_beats(job));
  return {true, int(job.r), padded, int(job.k_beats), leaving};
}

struct Position {
  ap_uint<18> base;  // first token of the block, or of two
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
    at.base += pass.paired ? ap_uint<7>(2 * abi::kLanes) : ap_uint<7>(pass.block_tokens);
  } else if (chunk_ends) {
    ++at.chunk;
  }
  return at;
}

}  // namespace attention
}  // namespace kvdrive
