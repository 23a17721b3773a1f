// SPDX-License-Identifier: Apache-2.0
// What separates the k largest keys from the others.
#pragma once

#include "argtopk/order.hpp"

namespace kvdrive {

using rank_t = ap_uint<18>;  // 0 to MAX_TOKENS
static_assert(abi::kMaxTokens < (1 << 18), "a count has 18 bits");

// Chosen are the keys above `threshold`, the k-th largest key, and the first `ties` keys equal to it.
// During a radix select: the digits found so far, and the rank of the wanted key among the keys that begin with them.
struct Cut {
  ordinal_t threshold = 0;
  rank_t ties = 0;
  bool finite = true;    // false when a key is Inf or NaN
  bool settled = false;  // no more digits are needed
};

// No key passes it.
inline Cut empty_cut() {
#pragma HLS INLINE
  Cut cut;
  cut.threshold = 0xffffffff;
  cut.finite = false;
  cut.settled = true;
  return cut;
}

}  // namespace kvdrive
