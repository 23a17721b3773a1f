// SPDX-License-Identifier: Apache-2.0
// Softmax weights (docs/arithmetic.md, Softmax): p = 2^(x - M) from a 64-entry table and a quadratic, with two
// multiplications.
#pragma once

#include "common/product.hpp"

namespace kvdrive {

using prob_t = ap_uint<32>;  // LSB 2^-31, at most 2^31
using max_t = ap_int<13>;    // the integer maximum of Q12.20 scores: -2048..2048

constexpr int kMantissaBits = abi::kExp2Bits + 1;

// p = mantissa << shift, mantissa below 2^20, shift 0..12; 0 for a masked token.
struct Probability {
  ap_uint<kMantissaBits> mantissa;
  ap_uint<5> shift;
};

// ceil(x / 2^20).
inline max_t ceil_score(score_t x) {
#pragma HLS INLINE
  const ap_uint<1> above = ap_uint<abi::kScoreFractionBits>(x) != 0;
  return max_t(x >> abi::kScoreFractionBits) + above;
}

// 2^f in [2^19, 2^20) with LSB 2^-19, for a fraction f with LSB 2^-20.
inline ap_uint<kMantissaBits> exp2_mantissa(ap_uint<abi::kScoreFractionBits> fraction) {
#pragma HLS INLINE
  constexpr int kRestBits = abi::kScoreFractionBits - abi::kExp2IndexBits;
  const unsigned index = fraction.to_uint() >> kRestBits;
  const unsigned rest = fraction.to_uint() & ((1U << kRestBits) - 1);
  const unsigned slope = abi::kExp2C1[index] + ((abi::kExp2C2[index] * rest) >> 14);
  const unsigned value = abi::kExp2C0[index] + ((slope * rest) >> 15);
  return (value + abi::kExp2Rounding) >> (abi::kExp2C0Bits - abi::kExp2Bits);
}

// `x` must not exceed max * 2^20; otherwise (a masked token) the result means nothing.
inline Probability probability(score_t x, max_t max) {
#pragma HLS INLINE
  constexpr int kShiftOfOne = abi::kPFractionBits - abi::kExp2Bits;
  const ap_int<34> y = ap_int<34>(x) - (ap_int<34>(max) << abi::kScoreFractionBits);
  const ap_uint<kMantissaBits> mantissa = exp2_mantissa(ap_uint<abi::kScoreFractionBits>(y));
  const int shift = ap_int<14>(y >> abi::kScoreFractionBits).to_int() + kShiftOfOne;
  if (shift >= 0) return {mantissa, ap_uint<5>(shift)};
  const int down = -shift > kMantissaBits + 1 ? kMantissaBits + 1 : -shift;
  return {ap_uint<kMantissaBits>((((mantissa.to_uint() << 1) >> down) + 1) >> 1), 0};
}

inline Probability no_probability() {
#pragma HLS INLINE
  return {0, 0};
}

inline prob_t to_fixed(Probability p) {
#pragma HLS INLINE
  return p.mantissa.to_uint() << p.shift.to_int();
}

// The inverse of `to_fixed`: p at most 2^31 with at most 20 significant bits.
inline Probability to_probability(prob_t p) {
#pragma HLS INLINE
  unsigned value = p.to_uint();
  int shift = 0;
  for (int step = 8; step >= 1; step >>= 1) {
#pragma HLS UNROLL
    if ((value >> (abi::kExp2Bits + step)) != 0) {
      value >>= step;
      shift += step;
    }
  }
  return {ap_uint<kMantissaBits>(value), ap_uint<5>(shift)};
}

inline Operand to_operand(Probability p) {
#pragma HLS INLINE
  return {ap_int<21>(p.mantissa), p.shift};
}

}  // namespace kvdrive
