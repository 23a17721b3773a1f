// SPDX-License-Identifier: Apache-2.0
// Codes as the multipliers take them (docs/arithmetic.md, Numbers at rest), and the sums of their products.
//
// A number is (code + zero) * multiplier * 2^exponent, LSB 2^-24. Codes of 8 bits have the zero 0 and the multiplier 1.
// The multiplier, 8 to 15, is three additions: it takes no DSP.
#pragma once

#include "attention/core.hpp"
#include "attention_codes/job.hpp"

namespace kvdrive {
namespace attention_codes {

// What the parts of a row share. False in `valid` if no row may have this step.
struct Step {
  ap_uint<3> eighths;  // of 4 bits: the multiplier is 8 + eighths
  ap_uint<6> exponent;
  ap_int<8> zero;
  bool valid;
};

template <int kBits>
Step step_of(const beat_t& bytes, int part) {
#pragma HLS INLINE
  constexpr int kLargestExponent8 = 33;
  const ap_uint<8> first = lane<8>(bytes, part * Format<kBits>::kPartStepBytes);
  if (kBits == 8) return {0, ap_uint<6>(first), 0, first <= kLargestExponent8};
  return {ap_uint<3>(first), ap_uint<6>((first >> 3) + 3), ap_int<8>(lane<8>(bytes, part * 2 + 1)), true};
}

// The code of number `l` of a part. A byte of codes of 4 bits holds the numbers l and l + 16.
template <int kBits>
ap_int<9> code_of(const beat_t& beat, int part, int l) {
#pragma HLS INLINE
  if (kBits == 8) return ap_int<8>(lane<8>(beat, part * abi::kLanes + l));
  const ap_uint<8> pair = lane<8>(beat, part * kHalfLanes + l % kHalfLanes);
  return ap_int<9>(l < kHalfLanes ? ap_uint<4>(pair) : ap_uint<4>(pair >> 4));
}

// n * (8 + eighths).
inline ap_int<13> times_multiplier(ap_int<9> n, ap_uint<3> eighths) {
#pragma HLS INLINE
  ap_int<13> product = ap_int<13>(n) << 3;
  for (int bit = 0; bit < 3; ++bit) {
#pragma HLS UNROLL
    if (eighths[bit]) product += ap_int<13>(n) << bit;
  }
  return product;
}

// Unpacks one part of a beat of codes. False if a code or the step is not one of a valid row. The multipliers' shift
// has five bits: larger exponents, 32 to 34, move the number by three bits instead, which is below 2^8 then. Scoring
// shifts the sum of a part and no number.
template <int kBits>
bool unpack_part(const beat_t& beat, int part, const Step& step, bool scoring, HalfParts numbers[abi::kLanes]) {
#pragma HLS INLINE
  constexpr int kMove = 3;
  constexpr int kNoCode8 = -128;
  constexpr int kMost = 127;                                  // code + zero
  constexpr int kLargestMantissa = 2047, kLargestShift = 29;  // of 65504
  const bool large = step.exponent > 31;
  const ap_uint<5> shift = large ? ap_uint<5>(step.exponent - kMove) : ap_uint<5>(step.exponent);
  const ap_uint<3> above = step.exponent > kLargestShift ? ap_uint<3>(step.exponent - kLargestShift) : ap_uint<3>(0);
  const ap_int<13> limit = kLargestMantissa >> above.to_int();
  bool valid = step.valid;
  for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
    const ap_int<9> n = code_of<kBits>(beat, part, l) + step.zero;
    const ap_int<13> steps = kBits == 8 ? ap_int<13>(n) : times_multiplier(n, step.eighths);
    valid &= kBits == 8 ? n != kNoCode8 : n <= kMost && steps <= limit && steps >= -limit;
    const ap_int<12> moved = ap_int<12>(steps) << kMove;
    numbers[l].mantissa = !scoring && large ? moved : ap_int<12>(steps);
    numbers[l].shift = scoring ? ap_uint<5>(0) : shift;
  }
  return valid;
}

// The sum of a part's products with a query, times 2^exponent. A valid result is below 2^85.
template <int kBits>
DotSum part_dot(const Term terms[abi::kLanes], ap_uint<6> exponent) {
#pragma HLS INLINE
  constexpr int kProductBits = kBits == 8 ? 47 : 51;  // |product| is below two to this
  constexpr int kWidth = kProductBits + 6;
  ap_int<kWidth> lower[kHalfLanes];
#pragma HLS ARRAY_PARTITION variable = lower complete
  ap_int<kWidth> upper[kHalfLanes];
#pragma HLS ARRAY_PARTITION variable = upper complete
  for (int l = 0; l < kHalfLanes; ++l) {
#pragma HLS UNROLL
    lower[l] = terms[l].value;
    upper[l] = terms[kHalfLanes + l].value;
  }
  const ap_int<kWidth + 1> sum = ap_int<kWidth + 1>(sum_lanes<kWidth>(lower)) + sum_lanes<kWidth>(upper);
  const ap_int<89> shifted = ap_int<89>(sum) << exponent;
  return {ap_int<62>(ap_uint<32>(shifted)), ap_int<57>(shifted >> 32)};
}

}  // namespace attention_codes
}  // namespace kvdrive
