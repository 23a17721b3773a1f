// SPDX-License-Identifier: Apache-2.0
// The scores of one head, dense tokens first, in sixteen banks: up to sixteen tokens from a multiple of their number on
// are read at once, and two tokens that lie 32 apart are written at once.
#pragma once

#include "attention/on_chip.hpp"

namespace kvdrive {
namespace attention {

constexpr int kScoreBanks = 16;
constexpr int kScoreBankBits = 4;
using ScoreMemory = OnChip<score_t, abi::kMaxTokens / kScoreBanks>[kScoreBanks];

// Bit 5 of the token chooses the half, so that tokens 32 apart lie in different banks.
inline ap_uint<kScoreBankBits> score_bank(ap_uint<18> token) {
#pragma HLS INLINE
  const ap_uint<kScoreBankBits> half = ap_uint<kScoreBankBits>(token[5]) << (kScoreBankBits - 1);
  return ap_uint<kScoreBankBits>(token) ^ half;
}

// What is written in one cycle: a token's score, and that of the token 32 behind it.
struct ScorePair {
  bool has_first;
  bool has_second;
  score_t first;
  score_t second;
};

inline void put_scores(ScoreMemory& scores, ap_uint<18> token, const ScorePair& pair) {
#pragma HLS INLINE
  const ap_uint<18> other = token + 32;
  for (int bank = 0; bank < kScoreBanks; ++bank) {
#pragma HLS UNROLL
    const bool first = pair.has_first && score_bank(token) == bank;
    const bool second = pair.has_second && score_bank(other) == bank;
    const ap_uint<18> place = first ? token : other;
    if (first || second) scores[bank][place >> kScoreBankBits] = first ? pair.first : pair.second;
  }
}

// The scores of kCount tokens, a power of two up to sixteen, from a multiple of kCount on.
template <int kCount>
inline void get_scores(ScoreMemory& scores, ap_uint<18> first, score_t found[kCount]) {
#pragma HLS INLINE
  score_t held[kScoreBanks];
#pragma HLS ARRAY_PARTITION variable = held complete
  for (int bank = 0; bank < kScoreBanks; ++bank) {
#pragma HLS UNROLL
    held[bank] = scores[bank][first >> kScoreBankBits];
  }
  constexpr int kStep = kCount < kScoreBanks ? kCount : kScoreBanks / 2;  // from one bank of a lane to its next one
  for (int i = 0; i < kCount; ++i) {
#pragma HLS UNROLL
    found[i] = 0;
    for (int bank = i % kStep; bank < kScoreBanks; bank += kStep) {
#pragma HLS UNROLL
      if (score_bank(first | ap_uint<18>(i)) == bank) found[i] = held[bank];
    }
  }
}

inline score_t get_score(ScoreMemory& scores, ap_uint<18> token) {
#pragma HLS INLINE
  score_t found[1];
  get_scores<1>(scores, token, found);
  return found[0];
}

}  // namespace attention
}  // namespace kvdrive
