// SPDX-License-Identifier: Apache-2.0
// Restoring division by digit recurrence: one subtraction per quotient bit, a pipeline when unrolled.
#pragma once

#include "common/types.hpp"

namespace kvdrive {

template <int kDigits>
struct Quotient {
  ap_uint<kDigits> digits;
  bool sticky;  // the remainder is not zero
};

// (head + tail / 2^kTail) / divisor for head < 2 * divisor, truncated; the first digit is worth 1.
template <int kDigits, int kWidth, int kTail>
inline Quotient<kDigits> divide(ap_uint<kWidth> head, ap_uint<kTail> tail, ap_uint<kWidth> divisor) {
#pragma HLS INLINE
  ap_uint<kWidth + 1> remainder = head;
  ap_uint<kDigits> digits = 0;
  for (int i = 0; i < kDigits; ++i) {
#pragma HLS UNROLL
    if (i > 0) {
      const ap_uint<1> next = tail >> (kTail - 1);
      remainder = (remainder << 1) | next;
      tail <<= 1;
    }
    const ap_uint<kWidth + 2> rest = ap_uint<kWidth + 2>(remainder) - divisor;
    const ap_uint<1> digit = !rest[kWidth + 1];
    if (digit != 0) remainder = rest;
    digits = (digits << 1) | digit;
  }
  return {digits, remainder != 0 || tail != 0};
}

// kDigits quotient digits of two normalised numbers as a significand with kDigits - 1 bits and a sticky bit;
// `below_one` when the quotient is in (1/2, 1) and the exponent therefore one less.
template <int kDigits>
struct Significand {
  ap_uint<kDigits> value;
  bool below_one;
};

template <int kDigits>
inline Significand<kDigits> to_significand(Quotient<kDigits> quotient) {
#pragma HLS INLINE
  const bool below_one = (quotient.digits >> (kDigits - 1)) == 0;
  const ap_uint<kDigits> aligned = below_one ? ap_uint<kDigits>(quotient.digits << 1) : quotient.digits;
  const ap_uint<1> sticky = quotient.sticky;
  return {ap_uint<kDigits>(aligned | sticky), below_one};
}

}  // namespace kvdrive
