// SPDX-License-Identifier: Apache-2.0
// q.k (docs/arithmetic.md, Scores): products of binary16 summed exactly, LSB 2^-48, rounded once to binary32.
#pragma once

#include "common/product.hpp"
#include "common/round.hpp"

namespace kvdrive {

// |S| < 2^88 for the 256 lanes of the largest head.
using dot_t = ap_int<89>;

// A sum of at most 256 products of two halves: below 2^53 each in `low`, below 2^48 in `high`.
using DotSum = SplitSum<62, 57>;

inline DotSum zero_dot() {
#pragma HLS INLINE
  return {0, 0};
}

constexpr int kHalfLanes = abi::kLanes / 2;

// The sum of 16 lanes, as a tree; destroys them.
template <int kWidth>
inline ap_int<kWidth> sum_lanes(ap_int<kWidth> lanes[kHalfLanes]) {
#pragma HLS INLINE
  for (int width = kHalfLanes / 2; width >= 1; width >>= 1) {
#pragma HLS UNROLL
    for (int l = 0; l < kHalfLanes / 2; ++l) {
#pragma HLS UNROLL
      if (l < width) lanes[l] += lanes[l + width];
    }
  }
  return lanes[0];
}

// The tree over half a beat of products, from lane `first` on. A product of two halves fits 54 bits in `low` and 49 in
// `high`, 16 of them fit 58 and 53.
inline DotSum sum_half(const Term terms[abi::kLanes], int first) {
#pragma HLS INLINE
  ap_int<58> low[kHalfLanes];
#pragma HLS ARRAY_PARTITION variable = low complete
  ap_int<53> high[kHalfLanes];
#pragma HLS ARRAY_PARTITION variable = high complete
  for (int l = 0; l < kHalfLanes; ++l) {
#pragma HLS UNROLL
    const Term& term = terms[first + l];
    low[l] = term.high ? ap_int<54>(0) : ap_int<54>(term.value);
    high[l] = term.high ? ap_int<49>(term.value) : ap_int<49>(0);
  }
  return {ap_int<62>(sum_lanes<58>(low)), ap_int<57>(sum_lanes<53>(high))};
}

inline DotSum sum_terms(const Term terms[abi::kLanes]) {
#pragma HLS INLINE
  return add(sum_half(terms, 0), sum_half(terms, kHalfLanes));
}

inline dot_t join_dot(const DotSum& sum) {
#pragma HLS INLINE
  return join<89>(sum);
}

inline single_t dot_to_single(dot_t dot) {
#pragma HLS INLINE
  return wide_to_single<-48>(dot);
}

}  // namespace kvdrive
