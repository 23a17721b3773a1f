// SPDX-License-Identifier: Apache-2.0
// The cut for any k by radix select: four digits of 8 bits, the most significant first.
//
// Each pass counts one digit of the keys that begin with the digits found before, then looks for the digit of the k-th
// largest key from the top, and ends early when all keys of its bin are wanted. Rate: 16 keys a cycle, then one of 256
// bins a cycle. Every lane has a histogram of its own, whose count of a bin is corrected with the updates that its
// memory has not finished. The caller owns the histograms, zero before the first pass; each pass leaves them zero. It
// feeds the same keys to every pass, so the first one can run while the keys are produced.
#pragma once

#include "argtopk/cut.hpp"

namespace kvdrive {

constexpr int kDigitBits = 8;
constexpr int kDigits = 4;
constexpr int kMagnitudeDigits = 2;  // the lower 16 bits of their ordinals are 0
constexpr int kBins = 1 << kDigitBits;
constexpr int kInFlight = 3;  // updates of a histogram that a read may not see yet

using bin_t = ap_uint<kDigitBits>;
using lane_count_t = ap_uint<14>;
using Histograms = lane_count_t[kGroupKeys][kBins];
static_assert(abi::kMaxTokens / kGroupKeys < (1 << 14));

// The latest updates of one histogram, the newest first.
struct InFlight {
  bool used[kInFlight] = {};
  bin_t bin[kInFlight] = {};
  lane_count_t count[kInFlight] = {};
};

// Adds one to a bin (if `used`), although a read of `memory` may miss the updates of the last kInFlight calls.
template <typename Memory>
void count_bin(Memory& memory, InFlight& latest, bool used, bin_t bin) {
#pragma HLS INLINE
  lane_count_t count = memory[bin];
  for (int age = kInFlight - 1; age >= 0; --age) {
#pragma HLS UNROLL
    if (latest.used[age] && latest.bin[age] == bin) count = latest.count[age];
  }
  ++count;
  if (used) memory[bin] = count;
  for (int age = kInFlight - 1; age > 0; --age) {
#pragma HLS UNROLL
    latest.used[age] = latest.used[age - 1];
    latest.bin[age] = latest.bin[age - 1];
    latest.count[age] = latest.count[age - 1];
  }
  latest.used[0] = used;
  latest.bin[0] = bin;
  latest.count[0] = count;
}

inline void clear_histograms(Histograms& histograms) {
clear:
  for (int bin = 0; bin < kBins; ++bin) {
#pragma HLS PIPELINE II = 1
    for (int i = 0; i < kGroupKeys; ++i) {
#pragma HLS UNROLL
      histograms[i][bin] = 0;
    }
  }
}

// The lowest bit of a digit.
inline int place_of(int digit) {
#pragma HLS INLINE
  return kDigitBits * (kDigits - 1 - digit);
}

inline bin_t digit_of(ordinal_t ordinal, int digit) {
#pragma HLS INLINE
  return bin_t(ordinal >> place_of(digit));
}

// Of the bits above the digit.
inline bool same_prefix(ordinal_t a, ordinal_t b, int digit) {
#pragma HLS INLINE
  return ((a ^ b) >> kDigitBits) >> place_of(digit) == 0;
}

inline ordinal_t with_digit(ordinal_t prefix, bin_t bin, int digit) {
#pragma HLS INLINE
  return prefix | (ordinal_t(bin) << place_of(digit));
}

// Lanes without a key fall into bin 0 as long as the prefix is 0, below all keys.
inline bool count_digit(Stream<group_t>& groups, int n, int digit, ordinal_t prefix, Histograms& histograms) {
  static_assert(kInFlight == 3);  // one less than the distance in the DEPENDENCE pragma
  InFlight latest[kGroupKeys];
#pragma HLS ARRAY_PARTITION variable = latest complete
  bool finite = true;
count:
  for (int first = 0; first < n; first += kGroupKeys) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = histograms type = inter direction = RAW distance = 4 dependent = true
    const group_t group = groups.read();
    finite = finite && !group[kNonFiniteBit];
    for (int i = 0; i < kGroupKeys; ++i) {
#pragma HLS UNROLL
      const ordinal_t ordinal = lane<32>(group, i);
      count_bin(histograms[i], latest[i], same_prefix(ordinal, prefix, digit), digit_of(ordinal, digit));
    }
  }
  return finite;
}

// The bin with the key of rank `rank` (1 = largest), and its rank among the keys of that bin; `whole`: it is the last
// of them. Clears the histograms.
inline bin_t find_bin(Histograms& histograms, rank_t& rank, bool& whole) {
  bin_t found_bin = 0;
  bool found = false;
find:
  for (int bin = kBins - 1; bin >= 0; --bin) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = histograms type = inter dependent = false
    rank_t total = 0;
    for (int i = 0; i < kGroupKeys; ++i) {
#pragma HLS UNROLL
      total += histograms[i][bin];
      histograms[i][bin] = 0;
    }
    if (!found && rank <= total) {
      found = true;
      found_bin = bin;
      whole = rank == total;
    }
    if (!found) rank -= total;
  }
  return found_bin;
}

// One pass: extends the cut by the digit numbered `digit`. Before the first pass `before` holds k in `ties`. If all
// keys of the bin are wanted, the cut lies right below them and is settled.
inline void select_digit(Stream<group_t>& groups, int n, int digit, const Cut& before, Histograms& histograms,
                         Cut& after) {
  rank_t rank = before.ties;
  after.finite = count_digit(groups, n, digit, before.threshold, histograms);
  bool whole = false;
  const ordinal_t threshold = with_digit(before.threshold, find_bin(histograms, rank, whole), digit);
  after.threshold = whole && threshold != 0 ? ordinal_t(threshold - 1) : threshold;
  after.ties = whole ? rank_t(0) : rank;
  after.settled = whole;
}

}  // namespace kvdrive
