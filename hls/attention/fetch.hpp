// SPDX-License-Identifier: Apache-2.0
// What an attending job reads: K and V through one port at a beat a cycle, everything small through another one.
#pragma once

#include "attention/heads.hpp"
#include "common/memory.hpp"

namespace kvdrive {
namespace attention {

constexpr int kScoresPerBeat = abi::kBeatBits / 32;

template <bool kSparf>
int mask_beats(const Job<kSparf>& job) {
#pragma HLS INLINE
  return (job.tokens + abi::kBeatBits - 1) / abi::kBeatBits;
}

// K, then V, then the V of the inline tokens. SPARF_TOKENS reads the columns of K only.
template <bool kSparf>
void fetch_rows(const beat_t* kv, Job<kSparf> job, Stream<beat_t>& rows) {
  const int arrays = chooses_tokens(job) ? 1 : 3;
fetch_arrays:
  for (int array = 0; array < arrays; ++array) {
    const ap_uint<58> first = array == 0 ? job.k : array == 1 ? job.v : job.inline_v;
    read_beats(kv + first, array < 2 ? job.k_beats : job.inline_v_beats, rows);
  }
}

template <int G, bool kSparf>
void fetch_query(const beat_t* io, const Job<kSparf>& job, Stream<beat_t>& query) {
#pragma HLS INLINE
  read_beats(io + job.q, G * job.row_beats, query);
}

// One bit per dense token, all ones for a job without a mask.
template <bool kSparf>
void fetch_masks(const beat_t* io, const Job<kSparf>& job, Stream<beat_t>& masks) {
#pragma HLS INLINE
  const int beats = mask_beats(job);
  if (job.masked) {
    read_beats(io + job.valid, beats, masks);
  } else {
  no_mask:
    for (int i = 0; i < beats; ++i) {
#pragma HLS PIPELINE II = 1
      masks.write(~beat_t(0));
    }
  }
}

// The query heads; the inline scores, 16 tokens of every head at a time; the mask; the sum of all V. Inline scores lie
// head by head: up to 16 tokens, as usual, are one ascending run; of longer ones every beat is an access of its own.
template <int G, bool kSparf>
void fetch_operands(const beat_t* io, Job<kSparf> job, Stream<beat_t>& queries, Stream<beat_t>& inline_scores,
                    Stream<beat_t>& masks, Stream<beat_t>& v_sums) {
  fetch_query<G>(io, job, queries);
  const int inline_beats = (job.inline_tokens + kScoresPerBeat - 1) / kScoresPerBeat;
fetch_inline:
  for (int block = 0; block < inline_beats; ++block) {
  fetch_inline_heads:
    for (int h = 0; h < G; ++h) {
#pragma HLS PIPELINE II = 1
      inline_scores.write(io[job.inline_scores + h * inline_beats + block]);
    }
  }
  fetch_masks(io, job, masks);
  if (blends_mean(job)) read_beats(io + job.v_sum, job.head_dim / 8, v_sums);
}

// Beats of 16 inline scores of one head -> words of all heads of one token.
template <int G, bool kSparf>
void order_inline_scores(Stream<beat_t>& beats, Job<kSparf> job, Stream<heads_t<G>>& words) {
  beat_t held[G];
#pragma HLS ARRAY_PARTITION variable = held complete
  const int blocks = (job.inline_tokens + kScoresPerBeat - 1) / kScoresPerBeat;
  ap_uint<4> taken = 0;  // heads of this block
  ap_uint<4> sent = 0;   // its tokens
order_words:
  for (int i = 0; i < blocks * G + job.inline_tokens; ++i) {
#pragma HLS PIPELINE II = 1
    if (taken != G) {
      const beat_t beat = beats.read();
      for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
        if (h == taken) held[h] = beat;
      }
      ++taken;
    } else {
      heads_t<G> word = 0;
      for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
        set_lane<32>(word, h, single_lane(held[h], sent));
      }
      words.write(word);
      if (sent == kScoresPerBeat - 1) taken = 0;
      ++sent;
    }
  }
}

}  // namespace attention
}  // namespace kvdrive
