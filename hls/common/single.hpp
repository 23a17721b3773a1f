// SPDX-License-Identifier: Apache-2.0
// binary32 arithmetic on bit patterns, round to nearest even with subnormals; every zero is +0, overflow gives
// infinity. Operands are finite (an infinity is treated as the number beyond the largest), divisors not zero, radicands
// not negative.
#pragma once

#include "common/divide.hpp"
#include "common/half.hpp"
#include "common/round.hpp"

namespace kvdrive {

// value = +-mantissa * 2^(exponent - 150), exponent 1..255.
struct SingleParts {
  bool negative;
  ap_int<11> exponent;
  ap_uint<24> mantissa;
};

inline SingleParts unpack_single(single_t x) {
#pragma HLS INLINE
  const unsigned bits = x.to_uint();
  const int field = static_cast<int>((bits >> 23) & 0xff);
  const int normal = field != 0 ? 1 : 0;
  return {(bits >> 31) != 0, field + 1 - normal, (static_cast<unsigned>(normal) << 23) | (bits & 0x7fffff)};
}

// The same with the leading one on top; zero keeps a zero mantissa.
inline SingleParts unpack_normalised(single_t x) {
#pragma HLS INLINE
  const SingleParts parts = unpack_single(x);
  const Normalised<24> n = normalise<24>(parts.mantissa);
  return {parts.negative, ap_int<11>(parts.exponent - n.shift), n.value};
}

inline bool is_finite_single(single_t x) {
#pragma HLS INLINE
  return (x & 0x7f800000) != 0x7f800000;
}

inline single_t single_negate(single_t x) {
#pragma HLS INLINE
  return x ^ single_t(0x80000000);
}

inline single_t single_add(single_t a, single_t b) {
#pragma HLS INLINE
  const bool swap = ap_uint<31>(a) < ap_uint<31>(b);
  const SingleParts big = unpack_single(swap ? b : a);
  const SingleParts small = unpack_single(swap ? a : b);
  const ap_int<11> distance = big.exponent - small.exponent;
  const ap_uint<5> down = distance > 27 ? ap_uint<5>(27) : ap_uint<5>(distance);
  // Guard, round and sticky bits below the mantissas keep the one rounding exact.
  const ap_uint<27> shifted_out = ap_uint<27>(small.mantissa) << 3;
  const ap_uint<27> kept = shifted_out >> down;
  const ap_uint<1> lost = ap_uint<27>(kept << down) != shifted_out;
  const ap_uint<27> addend = kept | lost;
  const ap_uint<27> base = ap_uint<27>(big.mantissa) << 3;
  const ap_uint<28> sum = big.negative == small.negative ? ap_uint<28>(base + addend) : ap_uint<28>(base - addend);
  const Normalised<28> n = normalise<28>(sum);
  const ap_uint<25> top = n.value >> 3;
  const ap_uint<1> sticky = (n.value & 7) != 0;
  return pack_single(big.negative, big.exponent + 1 - n.shift, (ap_uint<26>(top) << 1) | sticky);
}

inline single_t single_mul(single_t a, single_t b) {
#pragma HLS INLINE
  const SingleParts x = unpack_single(a);
  const SingleParts y = unpack_single(b);
  const ap_uint<48> product = x.mantissa * y.mantissa;
  const Normalised<48> n = normalise<48>(product);
  const ap_uint<25> top = n.value >> 23;
  const ap_uint<1> sticky = ap_uint<23>(n.value) != 0;
  const ap_int<11> exponent = x.exponent + y.exponent - 126 - n.shift;
  return pack_single(x.negative != y.negative, exponent, (ap_uint<26>(top) << 1) | sticky);
}

inline single_t single_div(single_t a, single_t b) {
#pragma HLS INLINE
  const SingleParts x = unpack_normalised(a);
  const SingleParts y = unpack_normalised(b);
  const Significand<26> quotient = to_significand(divide<26, 24, 1>(x.mantissa, 0, y.mantissa));
  const ap_int<11> exponent = x.exponent - y.exponent + 127 - ap_uint<1>(quotient.below_one);
  return pack_single(x.negative != y.negative, exponent, quotient.value);
}

inline single_t single_sqrt(single_t a) {
#pragma HLS INLINE
  const SingleParts x = unpack_normalised(a);
  // mantissa * 2^(exponent - 150) = radicand * 2^(2 * half_power): radicand in [2^48, 2^50), its root in [2^24, 2^25).
  const bool odd = (x.exponent & 1) != 0;
  ap_uint<50> radicand = ap_uint<50>(x.mantissa) << (odd ? 25 : 26);
  const ap_int<11> half_power = (x.exponent - (odd ? 175 : 176)) >> 1;
  ap_uint<25> root = 0;
  ap_uint<27> remainder = 0;
  for (int i = 0; i < 25; ++i) {
#pragma HLS UNROLL
    const ap_uint<2> next = radicand >> 48;
    const ap_uint<27> trial = (ap_uint<27>(root) << 2) | 1;
    remainder = (remainder << 2) | next;
    radicand <<= 2;
    const ap_uint<28> rest = ap_uint<28>(remainder) - trial;
    const ap_uint<1> digit = !rest[27];
    if (digit != 0) remainder = rest;
    root = (root << 1) | digit;
  }
  const ap_uint<1> sticky = remainder != 0;
  return pack_single(false, half_power + (127 + 24), (ap_uint<26>(root) << 1) | sticky);
}

// sat_int32(RNE(x * 2^20)): a score in Q12.20. Infinities saturate.
inline score_t single_to_score(single_t x) {
#pragma HLS INLINE
  const SingleParts parts = unpack_single(x);
  const unsigned mantissa = parts.mantissa.to_uint();
  const int up = parts.exponent.to_int() - (150 - abi::kScoreFractionBits);
  if (up > 7) return parts.negative ? score_t(-2147483647 - 1) : score_t(2147483647);
  const int down = up >= 0 ? 0 : up < -26 ? 26 : -up;
  const unsigned doubled = mantissa << 1;
  const unsigned kept = doubled >> down;
  const bool lost = (kept << down) != doubled;
  const bool round_up = (kept & 1) != 0 && (lost || (kept & 2) != 0);
  const unsigned rounded = (kept >> 1) + (round_up ? 1 : 0);
  const int magnitude = static_cast<int>(up > 0 ? mantissa << up : rounded);
  return parts.negative ? -magnitude : magnitude;
}

// fl16(x).
inline half_t single_to_half(single_t x) {
#pragma HLS INLINE
  const SingleParts parts = unpack_single(x);
  const ap_uint<12> top = parts.mantissa >> 12;
  const ap_uint<1> sticky = ap_uint<12>(parts.mantissa) != 0;
  return pack_half(parts.negative, parts.exponent - 127 + 15, (ap_uint<13>(top) << 1) | sticky);
}

}  // namespace kvdrive
