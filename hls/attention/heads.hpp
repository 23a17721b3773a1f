// SPDX-License-Identifier: Apache-2.0
// Words that carry one value per query head, and the on-chip memories of a job.
#pragma once

#include "attention/job.hpp"
#include "attention/scores.hpp"
#include "common/accumulate.hpp"
#include "common/ratio.hpp"
#include "common/stream.hpp"

namespace kvdrive {
namespace attention {

constexpr int kLowestScore = -2147483647 - 1;

// One bit per dense token.
constexpr int kMaskBeats = abi::kMaxTokens / abi::kBeatBits;
using MaskMemory = beat_t[kMaskBeats];

// A 32-bit value per head. (At least three: `lane` takes them from words beyond 64 bits.)
template <int G>
using heads_t = ap_uint<32 * (G > 3 ? G : 3)>;

// Register arrays are not indexed at run time: they are read and written through these.
template <int G, typename T>
inline T pick(const T* heads, int head) {
#pragma HLS INLINE
  T value = heads[0];
  for (int h = 1; h < G; ++h) {
#pragma HLS UNROLL
    if (h == head) value = heads[h];
  }
  return value;
}

template <int G, typename T>
inline void put(T* heads, int head, const T& value) {
#pragma HLS INLINE
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    if (h == head) heads[h] = value;
  }
}

// One of a power of two of lanes.
template <int kLanes, typename T>
inline T pick_lane(const T lanes[kLanes], ap_uint<5> lane) {
#pragma HLS INLINE
  T left[kLanes];
#pragma HLS ARRAY_PARTITION variable = left complete
  for (int l = 0; l < kLanes; ++l) {
#pragma HLS UNROLL
    left[l] = lanes[l];
  }
  for (int half = kLanes / 2; half >= 1; half /= 2) {
#pragma HLS UNROLL
    const bool upper = (lane & half) != 0;
    for (int l = 0; l < half; ++l) {
#pragma HLS UNROLL
      if (upper) left[l] = left[l + half];
    }
  }
  return left[0];
}

// An accumulator per head, each in 128 bits.
template <int G>
using accs_t = ap_uint<128 * G>;

template <int G>
inline void set_acc(accs_t<G>& word, int head, acc_t acc) {
#pragma HLS INLINE
  set_lane<64>(word, 2 * head, ap_uint<64>(acc));
  set_lane<64>(word, 2 * head + 1, ap_uint<64>(acc >> 64));
}

template <int G>
inline acc_t acc_of(const accs_t<G>& word, int head) {
#pragma HLS INLINE
  const ap_uint<64> low = lane<64>(word, 2 * head);
  const ap_uint<26> high = lane<64>(word, 2 * head + 1);
  return acc_t((ap_uint<90>(high) << 64) | low);
}

// Integer maximum and sum of one head in a word.
inline ap_uint<64> pack_total(max_t max, sum_t sum) {
#pragma HLS INLINE
  return (ap_uint<64>(ap_uint<13>(max)) << 49) | sum;
}

inline max_t max_of(ap_uint<64> total) {
#pragma HLS INLINE
  return max_t(ap_uint<13>(total >> 49));
}

inline sum_t sum_of(ap_uint<64> total) {
#pragma HLS INLINE
  return sum_t(total);
}

}  // namespace attention
}  // namespace kvdrive
