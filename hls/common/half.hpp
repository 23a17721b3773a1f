// SPDX-License-Identifier: Apache-2.0
// binary16 as an integer with LSB 2^-24 (docs/arithmetic.md, Inputs): value = mantissa << shift, subnormals included.
// The sign sits in the mantissa, so that a signed multiplier needs no negation behind it.
#pragma once

#include "common/types.hpp"

namespace kvdrive {

// |mantissa| < 2^11; shift 0..29 for finite numbers.
struct HalfParts {
  ap_int<12> mantissa;
  ap_uint<5> shift;
};

inline bool is_finite(half_t h) {
#pragma HLS INLINE
  return (h.to_int() & 0x7c00) != 0x7c00;
}

// Infinities and NaNs give some finite value; `is_finite` is the caller's business.
inline HalfParts unpack(half_t h) {
#pragma HLS INLINE
  const int bits = h.to_int();
  const int exponent = (bits >> 10) & 31;
  const int normal = exponent != 0 ? 1 : 0;
  const int magnitude = (normal << 10) | (bits & 0x3ff);
  return {(bits & 0x8000) != 0 ? -magnitude : magnitude, exponent - normal};
}

// |value| < 2^40 for finite numbers.
inline ap_int<42> to_fixed(half_t h) {
#pragma HLS INLINE
  const HalfParts parts = unpack(h);
  return ap_int<42>(parts.mantissa) << parts.shift.to_int();
}

// True if `count` lanes from `first` on hold neither Inf nor NaN.
inline bool all_finite(const beat_t& beat, int first = 0, int count = abi::kLanes) {
#pragma HLS INLINE
  bool finite = true;
  for (int l = first; l < first + count; ++l) {
#pragma HLS UNROLL
    finite &= is_finite(half_lane(beat, l));
  }
  return finite;
}

// Unpacks the lanes of a beat; true when all of them are finite.
inline bool unpack_lanes(const beat_t& beat, HalfParts parts[abi::kLanes]) {
#pragma HLS INLINE
  bool finite = true;
  for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
    const half_t half = half_lane(beat, l);
    parts[l] = unpack(half);
    finite &= is_finite(half);
  }
  return finite;
}

}  // namespace kvdrive
