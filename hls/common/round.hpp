// SPDX-License-Identifier: Apache-2.0
// Normalisation and the one rounding of the contract: round to nearest, ties to even, subnormals honoured.
// Every zero that comes out is +0, overflow gives infinity.
#pragma once

#include <type_traits>

#include "common/types.hpp"

namespace kvdrive {

// `value` shifted left until its top bit is set; zero stays zero and its `shift` means nothing.
template <int kWidth>
struct Normalised {
  ap_uint<kWidth> value;
  ap_uint<7> shift;
};

template <int kWidth>
inline Normalised<kWidth> normalise(ap_uint<kWidth> value) {
#pragma HLS INLINE
  static_assert(kWidth <= 128, "the shift count has seven bits");
  Normalised<kWidth> n = {value, 0};
  for (int step = 64; step >= 1; step >>= 1) {
#pragma HLS UNROLL
    if (step < kWidth && (n.value >> (kWidth - step)) == 0) {
      n.value <<= step;
      n.shift += step;
    }
  }
  return n;
}

// A floating-point number of biased exponent `exponent` and significand 1.xxx: kFraction + 1 bits with the leading one
// on top, a guard bit and a sticky bit. Exponents below 1 give subnormals.
template <int kExponent, int kFraction>
inline ap_uint<1 + kExponent + kFraction> pack(bool negative, ap_int<11> exponent, ap_uint<kFraction + 3> significand) {
#pragma HLS INLINE
  constexpr int kInfinity = (1 << kExponent) - 1;
  const int biased = exponent.to_int();
  const int full = significand.to_int();
  const int excess = biased >= 1 ? 0 : 1 - biased;
  const int down = excess > kFraction + 3 ? kFraction + 3 : excess;
  const int kept = full >> down;
  const bool guard = (kept & 2) != 0;
  const bool sticky = (kept & 1) != 0 || (kept << down) != full;
  const bool odd = (kept & 4) != 0;
  // The leading one of a normal number, and a carry out of the fraction, each add one to the exponent field.
  // Unsigned: the field of an exponent beyond infinity's, which is not used, may pass 31 bits.
  const unsigned field = biased >= 1 ? biased - 1 : 0;
  const unsigned finite = (field << kFraction) + (kept >> 2) + (guard && (sticky || odd) ? 1 : 0);
  const unsigned magnitude = full == 0 ? 0 : biased >= kInfinity ? kInfinity << kFraction : finite;
  const unsigned sign = negative && magnitude != 0 ? 1 : 0;
  return (sign << (kExponent + kFraction)) | magnitude;
}

inline half_t pack_half(bool negative, ap_int<11> exponent, ap_uint<13> significand) {
#pragma HLS INLINE
  return pack<5, 10>(negative, exponent, significand);
}

inline single_t pack_single(bool negative, ap_int<11> exponent, ap_uint<26> significand) {
#pragma HLS INLINE
  return pack<8, 23>(negative, exponent, significand);
}

// The same for exponents of normal numbers, and for zero, without a leading one: one addition.
inline single_t pack_normal(bool negative, ap_uint<8> exponent, ap_uint<26> significand) {
#pragma HLS INLINE
  const ap_uint<23> fraction = significand >> 2;
  const ap_uint<1> up = significand[1] && (significand[0] || significand[2]);
  const ap_uint<31> magnitude = ((ap_uint<31>(exponent) << 23) | fraction) + up;
  const ap_uint<32> number = (ap_uint<32>(negative ? 1 : 0) << 31) | magnitude;
  return significand[25] ? number : ap_uint<32>(0);
}

// The up to 64 bits below at most 31 leading zeros of a magnitude, and what was cut off below them.
template <int kWidth>
struct Upper {
  static constexpr int kBits = kWidth < 64 ? kWidth : 64;
  ap_uint<kBits> bits;
  int zeros;  // shifted out on the way; `bits` may have more
  bool lost;
};

template <int kWidth>
inline std::enable_if_t<(kWidth <= 64), Upper<kWidth>> upper_bits(ap_uint<kWidth> magnitude) {
#pragma HLS INLINE
  return {magnitude, 0, false};
}

template <int kWidth>
inline std::enable_if_t<(kWidth > 64), Upper<kWidth>> upper_bits(ap_uint<kWidth> magnitude) {
#pragma HLS INLINE
  int zeros = 0;
  for (int step = 64; step >= 32; step >>= 1) {
#pragma HLS UNROLL
    if (ap_uint<kWidth>(magnitude >> (kWidth - step)) == 0) {
      magnitude <<= step;
      zeros += step;
    }
  }
  return {ap_uint<64>(magnitude >> (kWidth - 64)), zeros, ap_uint<kWidth - 64>(magnitude) != 0};
}

// fl32(+-magnitude * 2^kLsb). The static bounds exclude subnormals and overflow.
template <int kLsb, int kWidth>
inline single_t magnitude_to_single(bool negative, const ap_uint<kWidth>& magnitude) {
#pragma HLS INLINE
  static_assert(kWidth > 25 && kWidth <= 128, "a fraction and what lies below it");
  static_assert(kLsb >= -126 && kLsb + kWidth <= 128, "the result must be zero or a normal number");
  constexpr int kBits = Upper<kWidth>::kBits;
  const Upper<kWidth> upper = upper_bits<kWidth>(magnitude);
  const Normalised<kBits> n = normalise<kBits>(upper.bits);
  const ap_uint<25> top = n.value >> (kBits - 25);
  const ap_uint<1> sticky = upper.lost || ap_uint<kBits - 25>(n.value) != 0;
  const int exponent = 127 + kLsb + kWidth - 1 - upper.zeros - n.shift.to_int();
  return pack_normal(negative, ap_uint<8>(exponent), (ap_uint<26>(top) << 1) | sticky);
}

// fl32(value * 2^kLsb).
template <int kLsb, int kWidth>
inline single_t wide_to_single(const ap_int<kWidth>& value) {
#pragma HLS INLINE
  const bool negative = value < 0;
  const ap_uint<kWidth> magnitude = negative ? ap_uint<kWidth>(-value) : ap_uint<kWidth>(value);
  return magnitude_to_single<kLsb, kWidth>(negative, magnitude);
}

}  // namespace kvdrive
