// SPDX-License-Identifier: Apache-2.0
// Quotients of exact integers, rounded once (docs/arithmetic.md, Output and SparF).
#pragma once

#include "common/accumulate.hpp"
#include "common/divide.hpp"
#include "common/round.hpp"

namespace kvdrive {

using sum_t = ap_uint<49>;  // Z, LSB 2^-31

// acc / sum = +-significand * 2^exponent with kDigits quotient digits, the leading one worth 1.
template <int kDigits>
struct Ratio {
  bool negative;
  ap_int<11> exponent;
  ap_uint<kDigits> significand;
};

template <int kDigits, int kAccWidth, int kSumBits>
inline Ratio<kDigits> ratio(ap_int<kAccWidth> acc, ap_uint<kSumBits> sum) {
#pragma HLS INLINE
  constexpr int kAccBits = kAccWidth - 1;
  const bool negative = acc < 0;
  const ap_uint<kAccBits> magnitude = negative ? ap_uint<kAccBits>(-acc) : ap_uint<kAccBits>(acc);
  const Normalised<kAccBits> a = normalise<kAccBits>(magnitude);
  const Normalised<kSumBits> z = normalise<kSumBits>(sum);
  const Significand<kDigits> quotient = to_significand(
      divide<kDigits, kSumBits, kAccBits - kSumBits>(a.value >> (kAccBits - kSumBits), a.value, z.value));
  const ap_int<11> exponent = ap_int<11>(kAccBits - kSumBits) - a.shift + z.shift - ap_uint<1>(quotient.below_one);
  return {negative, exponent, quotient.value};
}

// fl16(acc / sum * 2^-24); sum > 0, |acc| < 2^89.
inline half_t ratio_to_half(acc_t acc, sum_t sum) {
#pragma HLS INLINE
  const Ratio<13> r = ratio<13>(acc, sum);
  return pack_half(r.negative, r.exponent + (15 - 24), r.significand);
}

// fl32(quotient * 2^-24): zero or, for an integer over one below 2^49, a normal number.
inline single_t to_single(const Ratio<26>& quotient) {
#pragma HLS INLINE
  const ap_int<11> exponent = quotient.exponent + (127 - 24);
  return pack_normal(quotient.negative, ap_uint<8>(exponent), quotient.significand);
}

// fl32(acc / sum * 2^-24); sum > 0, |acc| below half the range of its type.
template <int kAccWidth, int kSumBits>
inline single_t ratio_to_single(ap_int<kAccWidth> acc, ap_uint<kSumBits> sum) {
#pragma HLS INLINE
  return to_single(ratio<26>(acc, sum));
}

// floor(a * 2^24 / b) for a <= b, b > 0: the weight of a SparF head.
inline ap_uint<25> ratio_to_weight(sum_t a, sum_t b) {
#pragma HLS INLINE
  return divide<abi::kWeightBits + 1, 49, 1>(a, 0, b).digits;
}

}  // namespace kvdrive
