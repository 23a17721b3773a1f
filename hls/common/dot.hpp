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

// The sum of 32 lanes, as a tree; destroys them.
template <int kWidth>
inline ap_int<kWidth> sum_lanes(ap_int<kWidth> lanes[abi::kLanes]) {
#pragma HLS INLINE
  for (int width = abi::kLanes / 2; width >= 1; width >>= 1) {
#pragma HLS UNROLL
    for (int l = 0; l < abi::kLanes / 2; ++l) {
#pragma HLS UNROLL
      if (l < width) lanes[l] += lanes[l + width];
    }
  }
  return lanes[0];
}

// The tree over the products of one beat. The terms must come from two halves: then 32 of them fit 59 and 54 bits.
inline DotSum sum_terms(const Term terms[abi::kLanes]) {
#pragma HLS INLINE
  ap_int<59> low[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = low complete
  ap_int<54> high[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = high complete
  for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
    low[l] = terms[l].high ? ap_int<54>(0) : ap_int<54>(terms[l].value);
    high[l] = terms[l].high ? ap_int<49>(terms[l].value) : ap_int<49>(0);
  }
  return {ap_int<62>(sum_lanes<59>(low)), ap_int<57>(sum_lanes<54>(high))};
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
