// SPDX-License-Identifier: Apache-2.0
// The cut for small k: a sorted array of the largest keys so far.
//
// Rate: one key a cycle, then k cycles. The array holds no indices: the pass that emits the chosen keys compares all
// keys with the cut once more, and so finds them in index order without a sort.
#pragma once

#include "argtopk/cut.hpp"

namespace kvdrive {

// `ordinals` descending; equal keys stay in order of arrival.
inline void insert(ordinal_t (&ordinals)[abi::kInsertionK], ordinal_t key) {
#pragma HLS INLINE
  bool above[abi::kInsertionK];
#pragma HLS ARRAY_PARTITION variable = above complete
  for (int i = 0; i < abi::kInsertionK; ++i) {
#pragma HLS UNROLL
    above[i] = key > ordinals[i];
  }
  for (int i = abi::kInsertionK - 1; i > 0; --i) {
#pragma HLS UNROLL
    if (above[i]) ordinals[i] = above[i - 1] ? ordinals[i - 1] : key;
  }
  if (above[0]) ordinals[0] = key;
}

// The cut of the k <= kInsertionK largest of n >= k keys.
inline void select_by_insertion(Stream<group_t>& groups, int n, int k, Cut& cut) {
  ordinal_t ordinals[abi::kInsertionK];
#pragma HLS ARRAY_PARTITION variable = ordinals complete
  for (int i = 0; i < abi::kInsertionK; ++i) {
#pragma HLS UNROLL
    ordinals[i] = 0;
  }
  group_t group = 0;
  bool finite = true;
  ordinal_t threshold = 0;
  rank_t ties = 0;
insertion:
  for (int i = 0; i < n + k; ++i) {
#pragma HLS PIPELINE II = 1
    if (i < n) {
      if (i % kGroupKeys == 0) {
        group = groups.read();
        finite = finite && !group[kNonFiniteBit];
      }
      insert(ordinals, lane<32>(group, 0));
      group >>= 32;
    } else {  // the kept keys leave in order; the k-th is the threshold
      ties = ordinals[0] == threshold ? rank_t(ties + 1) : rank_t(1);
      threshold = ordinals[0];
      for (int j = 0; j < abi::kInsertionK - 1; ++j) {
#pragma HLS UNROLL
        ordinals[j] = ordinals[j + 1];
      }
    }
  }
  cut.threshold = threshold;
  cut.ties = ties;
  cut.finite = finite;
  cut.settled = true;
}

}  // namespace kvdrive
