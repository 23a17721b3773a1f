// SPDX-License-Identifier: Apache-2.0
// The keys by which SparF chooses: embedding rows by the summed magnitudes of q, tokens by their share of the
// approximate attention, the local window before all others and masked tokens behind all others.
#pragma once

#include "argtopk/order.hpp"
#include "attention/heads.hpp"
#include "common/exp2.hpp"
#include "common/round.hpp"
#include "gemv/accumulators.hpp"

namespace kvdrive::attention {

constexpr std::uint32_t kLocalKey = 0x7f7fffff;
constexpr std::uint32_t kMaskedKey = 0xff7fffff;

using weight_t = ap_uint<abi::kWeightBits + 1>;
using GroupMemory = OnChip<group_t, abi::kMaxTokens / kGroupKeys>;

inline int keys_of(const Job& job) {
#pragma HLS INLINE
  return chooses_rows(job) ? int(job.head_dim) : int(job.tokens);
}

// fl32 of the summed magnitudes of one dimension, in lane 0 of the words.
template <int G>
single_t row_key(const beat_t words[G]) {
#pragma HLS INLINE
  ap_int<65> sum = 0;
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    sum += to_fixed(half_lane(words[h], 0) & 0x7fff);
  }
  return wide_to_single<-24>(sum);
}

// fl32 of the weighted sum of one token's probabilities; their common LSB does not matter.
template <int G>
single_t token_key(ScoreMemory (&scores)[G], int token, const max_t max[G], const weight_t weights[G]) {
#pragma HLS INLINE
  ap_int<65> sum = 0;
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    const Probability p = probability(scores[h][token], max[h]);
    const ap_uint<kMantissaBits + abi::kWeightBits + 1> product = p.mantissa * weights[h];
    sum += ap_uint<58>(product) << p.shift;
  }
  return wide_to_single<0>(sum);
}

// All keys, one a cycle, as groups of sixteen ordinals.
template <int G>
void make_groups(const Job& job, const beat_t queries[G][kMaxChunks], ScoreMemory (&scores)[G], const MaskMemory& masks,
                 const max_t max[G], const weight_t weights[G], GroupMemory& kept, Stream<group_t>& groups) {
#pragma HLS INLINE
  const bool rows = chooses_rows(job);
  const int n = keys_of(job);
  const int first_local = n - job.local;
  beat_t words[G];
#pragma HLS ARRAY_PARTITION variable = words complete
  beat_t mask = 0;
  group_t group = 0;
make_keys:
  for (int i = 0; i < groups_of(n) * kGroupKeys; ++i) {
#pragma HLS PIPELINE II = 1
    single_t key = 0;
    if (rows) {
      for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
        words[h] = i % abi::kLanes == 0 ? queries[h][i / abi::kLanes] : beat_t(words[h] >> 16);
      }
      key = row_key<G>(words);
    } else if (i < n) {
      if (i % abi::kBeatBits == 0) mask = masks[i / abi::kBeatBits];
      key = i >= first_local ? single_t(kLocalKey) : token_key<G>(scores, i, max, weights);
      if (!mask[i % abi::kBeatBits]) key = kMaskedKey;
    }
    group >>= 32;
    set_lane<32>(group, kGroupKeys - 1, i < n ? order_single(key) : ordinal_t(0));
    if (i % kGroupKeys == kGroupKeys - 1) {
      kept[i / kGroupKeys] = group;
      groups.write(group);
    }
  }
}

// The first pass computes the keys and keeps them; later passes take sixteen a cycle from there.
template <int G>
void feed_groups(bool first_pass, Job job, const beat_t queries[G][kMaxChunks], ScoreMemory (&scores)[G],
                 const MaskMemory& masks, const max_t max[G], const weight_t weights[G], GroupMemory& kept,
                 Stream<group_t>& groups) {
  if (first_pass) {
    make_groups<G>(job, queries, scores, masks, max, weights, kept, groups);
  } else {
  replay:
    for (int i = 0; i < groups_of(keys_of(job)); ++i) {
#pragma HLS PIPELINE II = 1
      groups.write(kept[i]);
    }
  }
}

}  // namespace kvdrive::attention
