// SPDX-License-Identifier: Apache-2.0
// The cut for any k by radix select: four digits of 8 bits, the most significant first.
//
// Each pass counts one digit of the keys that begin with the digits found before, then looks for the digit of the k-th
// largest key from the top, and ends early when all keys of its bin are wanted. Rate: 16 keys a cycle, then two of 256
// bins a cycle. Every lane has a histogram of its own, whose count of a bin is corrected with the updates that its
// memory has not finished. The caller owns the histograms, zero before the first pass; each pass leaves them zero. It
// feeds the same keys to every pass, so the first one can run while the keys are produced.
#pragma once

#include "argtopk/cut.hpp"

namespace kvdrive {

constexpr int kDigitBits = 8;
constexpr int kDigits = 4;
constexpr int kMagnitudeDigits = 2;  // the lower 16 bits of their ordinals are 0
constexpr int kBinPairs = 1 << (kDigitBits - 1);
constexpr int kInFlight = 3;  // updates of a histogram that a read may not see yet

using digit_t = ap_uint<2>;  // the number of a digit
using bin_t = ap_uint<kDigitBits>;
using lane_count_t = ap_uint<14>;
using Histogram = lane_count_t[2][kBinPairs];  // even bins, odd bins
using Histograms = Histogram[kGroupKeys];
static_assert(abi::kMaxTokens / kGroupKeys < (1 << 14), "a counter of groups has 14 bits");

// The latest updates of one histogram, the newest first.
struct InFlight {
  bool used[kInFlight] = {};
  bin_t bin[kInFlight] = {};
  lane_count_t count[kInFlight] = {};
};

// Adds one to a bin (if `used`) of a Histogram, whose reads may miss the updates of the last kInFlight calls.
template <typename Memory>
inline void count_bin(Memory& histogram, InFlight& latest, bool used, bin_t bin) {
#pragma HLS INLINE
  const ap_uint<kDigitBits - 1> pair = bin >> 1;
  const lane_count_t even = histogram[0][pair];
  const lane_count_t odd = histogram[1][pair];
  lane_count_t count = bin[0] ? odd : even;
  for (int age = kInFlight - 1; age >= 0; --age) {
#pragma HLS UNROLL
    if (latest.used[age] && latest.bin[age] == bin) count = latest.count[age];
  }
  ++count;
  if (used && !bin[0]) histogram[0][pair] = count;
  if (used && bin[0]) histogram[1][pair] = count;
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
clear_bins:
  for (int pair = 0; pair < kBinPairs; ++pair) {
#pragma HLS PIPELINE II = 1
    for (int i = 0; i < kGroupKeys; ++i) {
#pragma HLS UNROLL
      histograms[i][0][pair] = 0;
      histograms[i][1][pair] = 0;
    }
  }
}

// The lowest bit of a digit.
inline ap_uint<5> place_of(digit_t digit) {
#pragma HLS INLINE
  return kDigitBits * (kDigits - 1 - digit);
}

inline bin_t digit_of(ordinal_t ordinal, digit_t digit) {
#pragma HLS INLINE
  return bin_t(ordinal >> place_of(digit));
}

// True if the bits above the digit are the same.
inline bool same_prefix(ordinal_t a, ordinal_t b, digit_t digit) {
#pragma HLS INLINE
  const ordinal_t above = ordinal_t(0xffffffff << kDigitBits) << place_of(digit);
  return ((a ^ b) & above) == 0;
}

inline ordinal_t with_digit(ordinal_t prefix, bin_t bin, digit_t digit) {
#pragma HLS INLINE
  return prefix | (ordinal_t(bin) << place_of(digit));
}

// Counts one digit of the keys of a group (if `used`) that begin with `prefix`. Lanes without a key fall into bin 0 as
// long as the prefix is 0, below all keys.
inline void count_group(const group_t& group, bool used, digit_t digit, ordinal_t prefix, Histograms& histograms,
                        InFlight latest[kGroupKeys]) {
#pragma HLS INLINE
  for (int i = 0; i < kGroupKeys; ++i) {
#pragma HLS UNROLL
    const ordinal_t ordinal = lane<32>(group, i);
    count_bin(histograms[i], latest[i], used && same_prefix(ordinal, prefix, digit), digit_of(ordinal, digit));
  }
}

inline bool count_digit(Stream<group_t>& groups, int n, digit_t digit, ordinal_t prefix, Histograms& histograms) {
  static_assert(kInFlight == 3, "one less than the distance in the DEPENDENCE pragma");
  InFlight latest[kGroupKeys];
#pragma HLS ARRAY_PARTITION variable = latest complete
  bool finite = true;
count:
  for (int first = 0; first < n; first += kGroupKeys) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = histograms type = inter direction = RAW distance = 4 dependent = true
    const group_t group = groups.read();
    finite = finite && !group[kNonFiniteBit];
    count_group(group, true, digit, prefix, histograms, latest);
  }
  return finite;
}

// The bin with the key of rank `rank` (1 = largest), and its rank among the keys of that bin; `whole`: it is the last
// of them. Clears the histograms.
inline bin_t find_bin(Histograms& histograms, rank_t& rank, bool& whole) {
  ap_uint<kDigitBits - 1> found_pair = 0;
  rank_t found_upper = 0;
  rank_t found_both = 0;
  bool found = false;
find:
  for (int pair = kBinPairs - 1; pair >= 0; --pair) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = histograms type = inter dependent = false
    rank_t upper = 0;
    rank_t lower = 0;
    for (int i = 0; i < kGroupKeys; ++i) {
#pragma HLS UNROLL
      lower += histograms[i][0][pair];
      upper += histograms[i][1][pair];
      histograms[i][0][pair] = 0;
      histograms[i][1][pair] = 0;
    }
    const rank_t both = upper + lower;
    if (!found) {
      if (rank <= both) {
        found = true;
        found_pair = pair;
        found_upper = upper;
        found_both = both;
      } else {
        rank -= both;
      }
    }
  }
  const bool in_upper = rank <= found_upper;
  whole = rank == (in_upper ? found_upper : found_both);
  if (!in_upper) rank -= found_upper;
  return (bin_t(found_pair) << 1) | bin_t(in_upper);
}

// Extends the cut by the digit numbered `digit`, which the histograms count. Before the first digit `before` holds k in
// `ties`. If all keys of the bin are wanted, the cut lies right below them and is settled.
inline Cut cut_digit(const Cut& before, digit_t digit, Histograms& histograms) {
#pragma HLS INLINE
  Cut after = before;
  bool whole = false;
  const ordinal_t threshold = with_digit(before.threshold, find_bin(histograms, after.ties, whole), digit);
  after.threshold = whole && threshold != 0 ? ordinal_t(threshold - 1) : threshold;
  if (whole) after.ties = 0;
  after.settled = whole;
  return after;
}

// One pass over the keys.
inline void select_digit(Stream<group_t>& groups, int n, digit_t digit, const Cut& before, Histograms& histograms,
                         Cut& after) {
  const bool finite = count_digit(groups, n, digit, before.threshold, histograms);
  after = cut_digit(before, digit, histograms);
  after.finite = finite;
}

}  // namespace kvdrive
