// SPDX-License-Identifier: Apache-2.0
// What the first two SparF jobs do around the choice itself.
#pragma once

#include "attention/choose.hpp"
#include "attention/fetch.hpp"
#include "attention/queries.hpp"
#include "attention/record.hpp"
#include "common/dataflow.hpp"
#include "common/single.hpp"

namespace kvdrive {
namespace attention {

// A sum of |q| over all dimensions, LSB 2^-24.
using norm_t = ap_uint<50>;

// c_h = fl32(c * fl32(sqrt(fl32(L1 / Lr)))): all of |q| over its part in the chosen rows; c where that part is zero.
inline single_t scale_for(single_t c, norm_t all, norm_t chosen) {
#pragma HLS INLINE
  const single_t share = single_div(magnitude_to_single<-24>(false, all), magnitude_to_single<-24>(false, chosen));
  return chosen == 0 ? c : single_mul(c, single_sqrt(share));
}

template <int G>
void scale_heads(const SparfJob& job, const beat_t queries[G][kMaxChunks], const beat_t& rows, single_t scale[G]) {
#pragma HLS INLINE
scale_heads:
  for (int h = 0; h < job.heads; ++h) {
    norm_t all = 0;
    norm_t chosen = 0;
    beat_t word = 0;
  norms:
    for (int i = 0; i < job.head_dim; ++i) {
#pragma HLS PIPELINE II = 1
      word >>= 16;
      for (int from = 0; from < G; ++from) {
#pragma HLS UNROLL
        if (from == h && i % abi::kLanes == 0) word = queries[from][i / abi::kLanes];
      }
      const ap_uint<42> magnitude = to_fixed(half_lane(word, 0) & 0x7fff);
      all += magnitude;
      if (bit_at(rows, i)) chosen += magnitude;
    }
    put<G>(scale, h, scale_for(job.scale_log2e, all, chosen));
  }
}

template <int G>
void read_queries(const beat_t* io, SparfJob job, Stream<beat_t>& beats) {
  fetch_query<G>(io, job, beats);
}

template <int G>
void keep_queries(Stream<beat_t>& beats, SparfJob job, beat_t queries[G][kMaxChunks], status_t& status) {
  status = load_queries<G>(beats, job.row_beats, queries) ? status_t(0) : status_t(abi::kNonFinite);
}

template <int G>
void fetch_queries(const beat_t* io, SparfJob job, beat_t queries[G][kMaxChunks], status_t& status) {
#pragma HLS DATAFLOW
  DATAFLOW_FIFO(16, beats, beat_t);
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(read_queries<G>, io, job, beats);
  DATAFLOW_STAGE(keep_queries<G>, beats, job, queries, status);
  DATAFLOW_END
}

// W_h = floor(Zmin * 2^24 / Z_h).
template <int G>
void weigh_heads(const sum_t sum[G], weight_t weights[G]) {
#pragma HLS INLINE
  sum_t least = sum[0];
  for (int h = 1; h < G; ++h) {
#pragma HLS UNROLL
    if (sum[h] < least) least = sum[h];
  }
weigh_heads:
  for (int h = 0; h < G; ++h) {
#pragma HLS PIPELINE II = 1
    put<G>(weights, h, ratio_to_weight(least, pick<G>(sum, h)));
  }
}

// One walk after the other, with the same hardware: the sums of the heads, the keys, the digits of the cut, the choice.
// SPARF_ROWS has no sums; `sum` and `selected` mean nothing to it.
template <int G>
void walk_and_choose(const SparfJob& job, const beat_t queries[G][kMaxChunks], ScoreMemory (&scores)[G],
                     const MaskMemory& masks, const max_t max[G], sum_t sum[G], sum_t chosen_sum[G], MaskMemory& bitmap,
                     int& selected) {
#pragma HLS INLINE
  GroupMemory keys;
  Histograms histograms;
#pragma HLS ARRAY_PARTITION variable = histograms dim = 1 complete
#pragma HLS ARRAY_PARTITION variable = histograms dim = 2 complete
#pragma HLS BIND_STORAGE variable = histograms type = ram_s2p impl = bram
  weight_t weights[G];
#pragma HLS ARRAY_PARTITION variable = weights complete
  const bool rows = chooses_rows(job);
  const int n = keys_of(job);
  const int k = rows ? int(job.r) : int(job.k_top);
  const bool counted = !inserts(n, k);
  const int first = rows || !kWeighted<G> ? kKeyWalk : kSumWalk;
  Cut cut;
  cut.ties = k;
  int kind = first;
  int digit = 0;
  bool chosen = false;
  if (counted) clear_histograms(histograms);
walks:
  while (!chosen) {
    sum_t sums[G];
#pragma HLS ARRAY_PARTITION variable = sums complete
    walk<G>(kind, counted, digit, cut, job, queries, scores, masks, max, weights, keys, histograms, bitmap, sums,
            selected);
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      if (kind == first) sum[h] = sums[h];
      chosen_sum[h] = sums[h];
    }
    chosen = kind == kMarkWalk;
    if (kind == kSumWalk) {
      weigh_heads<G>(sum, weights);
      kind = kKeyWalk;
    } else if (!chosen) {
      if (counted) {
        cut = cut_digit(cut, digit, histograms);
        ++digit;
      } else {
        insert_keys(n, k, keys, cut);
      }
      kind = cut.settled || digit == kDigits ? kMarkWalk : kDigitWalk;
    }
  }
}

}  // namespace attention
}  // namespace kvdrive
