// SPDX-License-Identifier: Apache-2.0
// What one pass over the keys does: a digit of the radix select, the insertion array, or the marks of the chosen keys.
#pragma once

#include "argtopk/emit.hpp"
#include "argtopk/insertion.hpp"
#include "argtopk/radix.hpp"

namespace kvdrive {

enum Pass : int { kInsertionPass = kDigits, kEmitPass };  // below: the number of a radix digit

// Few keys are faster inserted than counted.
inline bool inserts(int n, int k) {
#pragma HLS INLINE
  return k <= abi::kInsertionK && n <= abi::kInsertionKeys;
}

inline int first_pass(int n, int k) {
#pragma HLS INLINE
  return inserts(n, k) ? int(kInsertionPass) : 0;
}

// After one that left `cut`: that of the next of `digits` digits, or the one that emits.
inline int next_pass(int pass, int digits, const Cut& cut) {
#pragma HLS INLINE
  return cut.settled || pass + 1 >= digits ? int(kEmitPass) : pass + 1;
}

inline void use_keys(Stream<group_t>& groups, int n, int k, int pass, const Cut& before, Histograms& histograms,
                     Stream<mask_t>& masks, Cut& after) {
  if (pass == kEmitPass) {
    mark_chosen(groups, n, before, masks);
    after = before;
  } else if (pass == kInsertionPass) {
    select_by_insertion(groups, n, k, after);
  } else {
    select_digit(groups, n, pass, before, histograms, after);
  }
}

}  // namespace kvdrive
