// SPDX-License-Identifier: Apache-2.0
// The choice of units: keys from the masses and the weights of the heads, argtopk's radix select over them, then the
// bitmap and the mass of the units that were not chosen.
#pragma once

#include "argtopk/emit.hpp"
#include "argtopk/radix.hpp"
#include "common/round.hpp"
#include "group_choice/masses.hpp"

namespace kvdrive {
namespace group_choice {

using weight_t = ap_uint<abi::kWeightBits + 1>;
using KeyMemory = OnChip<group_t, kMaxUnits / kGroupKeys>;
constexpr std::uint32_t kForcedOrdinal = 0xff7fffff;
constexpr int kMarkBeats = kMaxUnits / abi::kBeatBits;

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
#pragma HLS PIPELINE II = 1
    attention::put<G>(weights, h, ratio_to_weight(least, attention::pick<G>(sum, h)));
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

// The cut of the k_top largest keys.
inline Cut cut_keys(const Job& job, KeyMemory& keys) {
#pragma HLS INLINE
  Histograms histograms;
#pragma HLS ARRAY_PARTITION variable = histograms dim = 1 complete
#pragma HLS ARRAY_PARTITION variable = histograms dim = 2 complete
#pragma HLS BIND_STORAGE variable = histograms type = ram_s2p impl = bram
  clear_histograms(histograms);
  Cut cut;
  cut.ties = job.k_top;
  int digit = 0;
digits:
  while (!cut.settled && digit != kDigits) {
    InFlight latest[kGroupKeys];
#pragma HLS ARRAY_PARTITION variable = latest complete
  count_keys:
    for (int place = 0; place < groups_of(job.units); ++place) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = histograms type = inter direction = RAW distance = 4 dependent = true
      count_group(keys[place], true, digit, cut.threshold, histograms, latest);
    }
    cut = cut_digit(cut, digit, histograms);
    ++digit;
  }
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
