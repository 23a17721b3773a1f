// SPDX-License-Identifier: Apache-2.0
// The probabilities of all tokens, four a cycle, summed over the units and over all tokens.
#pragma once

#include "group_choice/score.hpp"

namespace kvdrive {
namespace group_choice {

using mass_t = ap_uint<39>;  // of a unit, LSB 2^-31, at most 128 tokens
using MassMemory = OnChip<mass_t, kMaxUnits>;
constexpr int kTokenLanes = 4;

// `sum`: of all valid tokens and the inline tokens.
template <int G>
void sum_units(const Job& job, ScoreMemory (&scores)[G], const MaskMemory& masks, const max_t max[G],
               MassMemory (&masses)[G], sum_t sum[G]) {
#pragma HLS INLINE
  mass_t mass[G];
#pragma HLS ARRAY_PARTITION variable = mass complete
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    mass[h] = 0;
    sum[h] = 0;
  }
  const ap_uint<18> all = job.rows.tokens + job.rows.inline_tokens;
  const ap_uint<18> unit_mask = (1 << job.unit_bits.to_int()) - 1;
  beat_t mask = 0;
unit_tokens:
  for (int first = 0; first < all; first += kTokenLanes) {
#pragma HLS PIPELINE II = 1
    const ap_uint<18> token = first;
    const bool dense = token < job.rows.tokens;
    if (token % abi::kBeatBits == 0) mask = masks[token / abi::kBeatBits];
    const bool begins = (token & unit_mask) == 0;
    const ap_uint<18> end = token + kTokenLanes;
    const bool ends = dense && ((end & unit_mask) == 0 || end == job.rows.tokens);
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      score_t score[kTokenLanes];
#pragma HLS ARRAY_PARTITION variable = score complete
      attention::get_scores<kTokenLanes>(scores[h], token, score);
      ap_uint<34> step = 0;
      for (int t = 0; t < kTokenLanes; ++t) {
#pragma HLS UNROLL
        const bool taken = dense ? bool(mask[t]) : token + t < all;
        if (taken) step += to_fixed(probability(score[t], max[h]));
      }
      sum[h] += step;
      mass[h] = (begins ? mass_t(0) : mass[h]) + step;
      if (ends) masses[h][token >> job.unit_bits.to_int()] = mass[h];
    }
    mask >>= kTokenLanes;
  }
}

}  // namespace group_choice
}  // namespace kvdrive
