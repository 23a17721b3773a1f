// SPDX-License-Identifier: Apache-2.0
// The keys by which SparF chooses: embedding rows by the summed magnitudes of q, tokens by their share of the
// approximate attention, the local window before all others and masked tokens behind all others.
#pragma once

#include "argtopk/emit.hpp"
#include "argtopk/radix.hpp"
#include "attention/heads.hpp"
#include "common/exp2.hpp"
#include "common/round.hpp"
#include "gemv/accumulators.hpp"

namespace kvdrive {
namespace attention {

constexpr std::uint32_t kLocalOrdinal = 0xff7fffff;
constexpr std::uint32_t kMaskedOrdinal = 0x00800000;

using weight_t = ap_uint<abi::kWeightBits + 1>;
using GroupMemory = OnChip<group_t, abi::kMaxTokens / kGroupKeys>;

inline int keys_of(const SparfJob& job) {
#pragma HLS INLINE
  return chooses_rows(job) ? int(job.head_dim) : int(job.tokens);
}

// Tokens that the walks below take in a cycle: fewer for more heads, each lane has a unit for 2^x per head.
template <int G>
constexpr int kTokenLanes = G == 1   ? 16
                            : G == 2 ? 8
                            : G <= 5 ? 4
                                     : 2;

// Heads of one group have weights from their sums; a single head needs none.
template <int G>
constexpr bool kWeighted = G > 1;

// What a key of several heads is the fl32 of. All keys of a job share an LSB, whose worth does not matter.
using key_sum_t = ap_uint<61>;

// The summed magnitudes of one dimension, in lane `lane` of the words.
template <int G>
key_sum_t row_sum(const beat_t words[G], int lane) {
#pragma HLS INLINE
  key_sum_t sum = 0;
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    sum += ap_uint<42>(to_fixed(half_lane(words[h], lane) & 0x7fff));
  }
  return sum;
}

// The weighted sum of one token's probabilities.
template <int G>
key_sum_t token_sum(const Probability p[G], const weight_t weights[G]) {
#pragma HLS INLINE
  key_sum_t sum = 0;
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    const ap_uint<kMantissaBits + abi::kWeightBits + 1> product = p[h].mantissa * weights[h];
    sum += ap_uint<58>(product) << p[h].shift;
  }
  return sum;
}

// In the order of the probabilities, which it tells apart as fl32 does: where the shift is not 0, the mantissa has its
// top bit, so the two are one number.
inline ordinal_t order_probability(Probability p) {
#pragma HLS INLINE
  const ap_uint<23> number = (ap_uint<23>(p.shift) << abi::kExp2Bits) + p.mantissa;
  return ordinal_t(number) << 8 | 0x80000000;
}

// The key of lane `lane`: of a row, from its words; of a token, from the probabilities of its heads.
template <int G>
ordinal_t key_of(bool rows, const beat_t words[G], int lane, const Probability p[G], const weight_t weights[G]) {
#pragma HLS INLINE
  static_assert(kWeighted<G>, "one head has no weights");
  return order_single(magnitude_to_single<0>(false, rows ? row_sum<G>(words, lane) : token_sum<G>(p, weights)));
}

template <>
inline ordinal_t key_of<1>(bool rows, const beat_t words[1], int lane, const Probability p[1], const weight_t*) {
#pragma HLS INLINE
  return rows ? order_magnitude(half_lane(words[0], lane)) : order_probability(p[0]);
}

// What a walk over the tokens is for.
enum Walk : int {
  kSumWalk,  // sums the probabilities of all tokens: the sums of the heads, which give their weights
  kKeyWalk,  // makes the keys and counts their first digit; the same sums, for several heads without the inline tokens
  kDigitWalk,  // counts one more digit, a group of keys a cycle
  kMarkWalk,   // marks the chosen keys, drops masked tokens from them, and sums over those left and the inline tokens
};

// One walk. `histograms` are counted where a digit is to be, `bitmap` and `selected` are results of kMarkWalk.
template <int G>
void walk(int kind, bool counted, int digit, const Cut& cut, const SparfJob& job, const beat_t queries[G][kMaxChunks],
          ScoreMemory (&scores)[G], const MaskMemory& masks, const max_t max[G], const weight_t weights[G],
          GroupMemory& keys, Histograms& histograms, MaskMemory& bitmap, sum_t sums[G], int& selected) {
#pragma HLS INLINE
  constexpr int kLanes = kTokenLanes<G>;
  constexpr int kSteps = kGroupKeys / kLanes;  // cycles of a group
  constexpr int kTokenBits = 18;
  static_assert(kInFlight == 3, "one less than the distance in the DEPENDENCE pragma");
  const bool rows = chooses_rows(job);
  const int n = keys_of(job);
  const int groups = groups_of(n);
  const int first_local = n - job.local;
  const int all = rows || (kind == kKeyWalk && kWeighted<G>) ? n : n + int(job.inline_tokens);
  const int cycles = kind == kDigitWalk ? groups : groups_of(all) * kSteps;
  InFlight latest[kGroupKeys];
#pragma HLS ARRAY_PARTITION variable = latest complete
  beat_t words[G];
#pragma HLS ARRAY_PARTITION variable = words complete
  beat_t mask = 0;
  mask_t chosen = 0;
  rank_t ties_left = cut.ties;
  beat_t marks = 0;
  group_t group = 0;
  selected = 0;
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    sums[h] = 0;
  }
tokens:
  for (int cycle = 0; cycle < cycles; ++cycle) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = keys type = inter dependent = false
#pragma HLS DEPENDENCE variable = bitmap type = inter dependent = false
#pragma HLS DEPENDENCE variable = histograms type = inter direction = RAW distance = 4 dependent = true
    const ap_uint<kTokenBits> first = cycle * kLanes;
    const int place = kind == kDigitWalk ? cycle : cycle / kSteps;  // of the group
    const bool begins = cycle % kSteps == 0;
    const bool completes = cycle % kSteps == kSteps - 1;
    if (rows) {
      for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
        words[h] = first % abi::kLanes == 0 ? queries[h][first / abi::kLanes] : beat_t(words[h] >> (16 * kLanes));
      }
    }
    if (first % abi::kBeatBits == 0) mask = rows ? ~beat_t(0) : beat_t(masks[first / abi::kBeatBits]);
    group_t held = 0;
    if (kind >= kDigitWalk && place < groups) held = keys[place];
    if (kind == kMarkWalk && begins) {
      const mask_t marked = mark_group(held, cut.threshold, ties_left);
      chosen = marked & mask_t(mask);
      for (int i = 0; i < kGroupsPerWord; ++i) {
#pragma HLS UNROLL
        const mask_t before = place % kGroupsPerWord < i ? mask_t(0) : lane<kGroupKeys>(marks, i);
        set_lane<kGroupKeys>(marks, i, place % kGroupsPerWord == i ? chosen : before);
      }
      if (place < groups) bitmap[place / kGroupsPerWord] = marks;
    }
    score_t score[G][kLanes];
#pragma HLS ARRAY_PARTITION variable = score complete dim = 0
    if (!rows) {
      for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
        get_scores<kLanes>(scores[h], first, score[h]);
      }
    }
    sum_t step[G];
#pragma HLS ARRAY_PARTITION variable = step complete
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      step[h] = 0;
    }
    group >>= 32 * kLanes;
    for (int i = 0; i < kLanes; ++i) {
#pragma HLS UNROLL
      const int token = first + i;
      const bool dense = token < n;
      const bool wanted = kind == kMarkWalk ? bool(chosen[i]) : bool(mask[i]);
      const bool taken = dense ? wanted : token < all;
      Probability p[G];
#pragma HLS ARRAY_PARTITION variable = p complete
      for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
        p[h] = rows ? no_probability() : probability(score[h][i], max[h]);
        if (taken) step[h] += to_fixed(p[h]);
      }
      if (dense && taken) ++selected;
      ordinal_t key = key_of<G>(rows, words, i, p, weights);
      if (!rows && token >= first_local) key = kLocalOrdinal;
      if (!rows && !mask[i]) key = kMaskedOrdinal;
      set_lane<32>(group, kGroupKeys - kLanes + i, dense ? key : ordinal_t(0));
    }
    mask >>= kLanes;
    chosen >>= kLanes;
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      sums[h] += step[h];
    }
    const bool made = kind == kKeyWalk && completes && place < groups;
    if (made) keys[place] = group;
    const bool digits = counted && (made || kind == kDigitWalk);
    count_group(kind == kDigitWalk ? held : group, digits, digit, cut.threshold, histograms, latest);
  }
}

}  // namespace attention
}  // namespace kvdrive
