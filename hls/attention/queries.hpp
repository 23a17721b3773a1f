// SPDX-License-Identifier: Apache-2.0
// The query heads on their way to the multipliers: for SPARF_TOKENS reduced to the chosen dimensions.
#pragma once

#include "attention/heads.hpp"
#include "attention/pass.hpp"
#include "gemv/accumulators.hpp"

namespace kvdrive {
namespace attention {

// Reads q [G][beats]; false when it holds an Inf or NaN.
template <int G>
bool load_queries(Stream<beat_t>& in, int beats, beat_t queries[G][kMaxChunks]) {
#pragma HLS INLINE
  bool finite = true;
load_heads:
  for (int h = 0; h < G; ++h) {
  load_head:
    for (int b = 0; b < beats; ++b) {
#pragma HLS PIPELINE II = 1
      const beat_t beat = in.read();
      finite &= all_finite(beat);
      for (int to = 0; to < G; ++to) {
#pragma HLS UNROLL
        if (to == h) queries[to][b] = beat;
      }
    }
  }
  return finite;
}

// Packs the chosen dimensions of every head, padded with zeros to whole beats.
template <int G>
void gather(const SparfJob& job, const beat_t& rows, const beat_t queries[G][kMaxChunks],
            beat_t chosen[G][kMaxChunks]) {
#pragma HLS INLINE
  beat_t source[G];
#pragma HLS ARRAY_PARTITION variable = source complete
  beat_t packed[G];
#pragma HLS ARRAY_PARTITION variable = packed complete
  const int padding = score_beats(job) * abi::kLanes - job.r;
  beat_t rows_left = rows;
  ap_uint<8> taken = 0;
gather_lanes:
  for (int i = 0; i < job.head_dim + padding; ++i) {
#pragma HLS PIPELINE II = 1
    const bool pad = i >= job.head_dim;
    const bool take = pad || (rows_left & 1) != 0;
    const bool completes = take && taken % abi::kLanes == abi::kLanes - 1;
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      if (i % abi::kLanes == 0 && !pad) source[h] = queries[h][i / abi::kLanes];
      const half_t half = pad ? half_t(0) : half_lane(source[h], 0);
      source[h] >>= 16;
      if (take) {
        packed[h] >>= 16;
        set_lane<16>(packed[h], abi::kLanes - 1, half);
      }
      if (completes) chosen[h][taken / abi::kLanes] = packed[h];
    }
    rows_left >>= 1;
    if (take) ++taken;
  }
}

// For tokens in pairs, the upper lanes repeat the lower ones. If q was not finite, nor is what is sent.
template <int G>
void send_queries(const beat_t queries[G][kMaxChunks], int beats, bool paired, bool finite, Stream<beat_t>& out) {
#pragma HLS INLINE
send_heads:
  for (int h = 0; h < G; ++h) {
  send_head:
    for (int b = 0; b < beats; ++b) {
#pragma HLS PIPELINE II = 1
      beat_t beat = 0;
      for (int from = 0; from < G; ++from) {
#pragma HLS UNROLL
        if (from == h) beat = queries[from][b];
      }
      if (!finite) beat = ~beat_t(0);
      out.write(paired ? beat_t((beat << (abi::kBeatBits / 2)) | beat) : beat);
    }
  }
}

// Passes q on, for SPARF_TOKENS reduced to the chosen dimensions.
template <int G>
void choose_queries(Stream<beat_t>& in, SparfJob job, beat_t rows, Stream<beat_t>& out) {
  if (chooses_tokens(job)) {
    beat_t queries[G][kMaxChunks];
#pragma HLS ARRAY_PARTITION variable = queries complete dim = 1
    beat_t chosen[G][kMaxChunks];
#pragma HLS ARRAY_PARTITION variable = chosen complete dim = 1
    const bool finite = load_queries<G>(in, job.row_beats, queries);
    gather<G>(job, rows, queries, chosen);
    send_queries<G>(chosen, score_beats(job), pairs_tokens(job), finite, out);
  } else {
  pass_queries:
    for (int i = 0; i < G * job.row_beats; ++i) {
#pragma HLS PIPELINE II = 1
      out.write(in.read());
    }
  }
}

}  // namespace attention
}  // namespace kvdrive
