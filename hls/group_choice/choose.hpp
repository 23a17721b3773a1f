// SPDX-License-Identifier: Apache-2.0
// The choice of units: keys from the masses and the weights of the heads, a search for the k-th largest of them, then
// the bitmap and the mass of the units that were not chosen.
#pragma once

#include "argtopk/cut.hpp"
#include "argtopk/emit.hpp"
#include "common/round.hpp"
#include "group_choice/masses.hpp"

namespace kvdrive {
namespace group_choice {

using weight_t = ap_uint<abi::kWeightBits + 1>;
using KeyMemory = OnChip<group_t, kMaxUnits / kGroupKeys>;
constexpr std::uint32_t kForcedOrdinal = 0xff7fffff;
constexpr int kOrdinalBits = 32;
constexpr int kStepBits = 2;  // of a step of the search
constexpr int kStepValues = 1 << kStepBits;
constexpr int kMarkBeats = kMaxUnits / abi::kBeatBits;

// floor(a * 2^24 / b) for a <= b, b > 0, a digit a cycle: it is needed once for each head.
inline weight_t divide_slowly(sum_t a, sum_t b) {
#pragma HLS INLINE
  ap_uint<50> rest = a;
  weight_t quotient = 0;
weight_digits:
  for (int i = 0; i <= abi::kWeightBits; ++i) {
#pragma HLS PIPELINE II = 1
    const bool digit = rest >= b;
    const ap_uint<50> left = digit ? ap_uint<50>(rest - b) : rest;
    quotient = (quotient << 1) | (digit ? 1 : 0);
    rest = left << 1;
  }
  return quotient;
}

// W_h = floor(Zmin * 2^24 / Z_h).
template <int G>
void weigh_sums(const sum_t sum[G], weight_t weights[G]) {
#pragma HLS INLINE
  sum_t least = sum[0];
  for (int h = 1; h < G; ++h) {
#pragma HLS UNROLL
    if (sum[h] < least) least = sum[h];
  }
weigh_heads:
  for (int h = 0; h < G; ++h) {
    attention::put<G>(weights, h, divide_slowly(least, attention::pick<G>(sum, h)));
  }
}

// One key a cycle. Lanes of the last group beyond the units hold no key.
template <int G>
void make_keys(const Job& job, MassMemory (&masses)[G], const weight_t weights[G], KeyMemory& keys) {
#pragma HLS INLINE
  group_t group = 0;
make_keys:
  for (int unit = 0; unit < groups_of(job.units) * kGroupKeys; ++unit) {
#pragma HLS PIPELINE II = 1
    ap_uint<67> total = 0;
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      const ap_uint<64> product = masses[h][unit] * weights[h];
      total += product;
    }
    const bool forced = unit == 0 || unit == job.units - 1;
    const ordinal_t key = order_single(magnitude_to_single<0>(false, total));
    group >>= 32;
    set_lane<32>(group, kGroupKeys - 1, unit >= job.units ? ordinal_t(0) : forced ? ordinal_t(kForcedOrdinal) : key);
    if (unit % kGroupKeys == kGroupKeys - 1) keys[unit / kGroupKeys] = group;
  }
}

// The cut of the k_top largest keys, two bits of the threshold at a time from the top: of the four values, the largest
// one that at least k_top keys reach. For thousands of units this is as fast as a histogram, and much smaller.
inline Cut cut_keys(const Job& job, KeyMemory& keys) {
#pragma HLS INLINE
  Cut cut;
  rank_t above = 0;  // keys beyond all that begin with the bits found so far
search:
  for (int place = kOrdinalBits - kStepBits; place >= 0; place -= kStepBits) {
    ordinal_t limits[kStepValues];
#pragma HLS ARRAY_PARTITION variable = limits complete
    rank_t counts[kStepValues];
#pragma HLS ARRAY_PARTITION variable = counts complete
    for (int value = 0; value < kStepValues; ++value) {
#pragma HLS UNROLL
      limits[value] = cut.threshold | (ordinal_t(value) << place);
      counts[value] = 0;
    }
  count_keys:
    for (int i = 0; i < groups_of(job.units); ++i) {
#pragma HLS PIPELINE II = 1
      const group_t group = keys[i];
      for (int value = 1; value < kStepValues; ++value) {
#pragma HLS UNROLL
        ap_uint<5> reached = 0;
        for (int key = 0; key < kGroupKeys; ++key) {
#pragma HLS UNROLL
          reached += lane<32>(group, key) >= limits[value] ? 1 : 0;
        }
        counts[value] += reached;
      }
    }
    for (int value = 1; value < kStepValues; ++value) {
#pragma HLS UNROLL
      if (counts[value] >= job.k_top) {
        cut.threshold = limits[value];
      } else if (value == 1 || counts[value - 1] >= job.k_top) {
        above = counts[value];
      }
    }
  }
  cut.ties = job.k_top - above;
  return cut;
}

// One unit a cycle, in whole words of the bitmap.
template <int G>
void mark_units(const Job& job, KeyMemory& keys, const Cut& cut, MassMemory (&masses)[G], beat_t marks[kMarkBeats],
                sum_t unread[G]) {
#pragma HLS INLINE
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    unread[h] = 0;
  }
  rank_t ties_left = cut.ties;
  mask_t chosen = 0;
  beat_t word = 0;
mark_units:
  for (int unit = 0; unit < bitmap_words(job.units) * abi::kBeatBits; ++unit) {
#pragma HLS PIPELINE II = 1
    const bool exists = unit < job.units;
    if (exists && unit % kGroupKeys == 0) chosen = mark_group(keys[unit / kGroupKeys], cut.threshold, ties_left);
    const bool mark = exists && chosen[0];
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      if (exists && !mark) unread[h] += masses[h][unit];
    }
    chosen >>= 1;
    word >>= 1;
    word[abi::kBeatBits - 1] = mark;
    if (unit % abi::kBeatBits == abi::kBeatBits - 1) marks[unit / abi::kBeatBits] = word;
  }
}

// The bitmap of a job without a result.
inline void mark_nothing(beat_t marks[kMarkBeats]) {
#pragma HLS INLINE
mark_nothing:
  for (int i = 0; i < kMarkBeats; ++i) {
#pragma HLS PIPELINE II = 1
    marks[i] = 0;
  }
}

}  // namespace group_choice
}  // namespace kvdrive
