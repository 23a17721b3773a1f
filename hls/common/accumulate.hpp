// SPDX-License-Identifier: Apache-2.0
// p.v (docs/arithmetic.md, Output): exact sums of p * v over up to 2^17 tokens, LSB 2^-55.
#pragma once

#include "common/exp2.hpp"
#include "common/product.hpp"

namespace kvdrive {

// |acc| < 2^89.
using acc_t = ap_int<90>;

// A running accumulator: terms below 2^62 in `low`, below 2^40 in `high`, 2^17 of them.
using AccSum = SplitSum<80, 58>;

inline AccSum zero_acc() {
#pragma HLS INLINE
  return {0, 0};
}

inline acc_t join_acc(const AccSum& sum) {
#pragma HLS INLINE
  return join<90>(sum);
}

}  // namespace kvdrive
