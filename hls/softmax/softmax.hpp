// SPDX-License-Identifier: Apache-2.0
// softmax: base-2 probabilities of one head's scores, one score a cycle in each of two passes.
//
// In: `dense` scores (Q12.20), of which the bitmap `valid` keeps some (read when `masked`: ceil(dense / 512) beats, bit
// i of the stream is score i), then `tail` scores, which always count. The first pass stores the scores on chip and
// finds the maximum, the second one writes a probability for each, 0 for a masked one. Out: those, the integer maximum
// and the exact sum; LSB 2^-31. Returns a status word: with BAD_LENGTH (dense + tail outside 1..131072) no stream is
// touched; with EMPTY (no score counts) all results are 0. Cycles: 2 * (dense + tail).
#pragma once

#include "common/exp2.hpp"
#include "common/ratio.hpp"
#include "common/stream.hpp"

// The most scores of a call. Devices with less memory take fewer: their platform files (sim/openhls/platforms) say so.
#ifndef KVDRIVE_SOFTMAX_SCORES
#define KVDRIVE_SOFTMAX_SCORES abi::kMaxTokens
#endif

namespace kvdrive {

// A score and, on top, whether it counts. Two of them fit a word of UltraRAM.
using entry_t = ap_uint<33>;
using entry_pair_t = ap_uint<66>;
constexpr int kMaxScores = KVDRIVE_SOFTMAX_SCORES;
constexpr int kEntryPairs = kMaxScores / 2;
static_assert(kMaxScores % 2 == 0 && kMaxScores <= abi::kMaxTokens, "entries are stored in pairs");

struct Peak {
  bool any;  // some score counts
  score_t score;
};

inline Peak collect_scores(Stream<score_t>& dense_scores, Stream<beat_t>& valid, Stream<score_t>& tail_scores,
                           int dense, int tail, bool masked, entry_pair_t entries[kEntryPairs]) {
#pragma HLS INLINE
  const int count = dense + tail;
  Peak peak = {false, 0};
  beat_t mask = 0;
  entry_t even = 0;
collect:
  for (int i = 0; i < count; ++i) {
#pragma HLS PIPELINE II = 1
    const bool is_dense = i < dense;
    if (is_dense && masked && i % abi::kBeatBits == 0) mask = valid.read();
    const score_t score = is_dense ? dense_scores.read() : tail_scores.read();
    const bool counts = !is_dense || !masked || (mask & 1) != 0;
    mask >>= 1;
    if (counts && (!peak.any || score > peak.score)) peak.score = score;
    peak.any = peak.any || counts;
    const entry_t entry = (entry_t(ap_uint<1>(counts)) << 32) | ap_uint<32>(score);
    const entry_t odd = i % 2 == 1 ? entry : entry_t(0);
    if (i % 2 == 0) even = entry;
    if (i % 2 == 1 || i == count - 1) entries[i / 2] = (entry_pair_t(odd) << 33) | even;
  }
  return peak;
}

inline sum_t emit_probabilities(const entry_pair_t entries[kEntryPairs], int count, max_t max, Stream<prob_t>& out) {
#pragma HLS INLINE
  sum_t sum = 0;
emit:
  for (int i = 0; i < count; ++i) {
#pragma HLS PIPELINE II = 1
    const entry_pair_t pair = entries[i / 2];
    const entry_t entry = i % 2 == 1 ? entry_t(pair >> 33) : entry_t(pair);
    const bool counts = (entry >> 32) != 0;
    const score_t score = ap_uint<32>(entry);
    const prob_t p = counts ? to_fixed(probability(score, max)) : prob_t(0);
    sum += p;
    out.write(p);
  }
  return sum;
}

// C linkage: v++ finds a kernel by its linker name.
extern "C" int softmax(Stream<score_t>& dense_scores, Stream<beat_t>& valid, Stream<score_t>& tail_scores,
                       Stream<prob_t>& p, int dense, int tail, int masked, int& max, ap_uint<64>& sum);

}  // namespace kvdrive
