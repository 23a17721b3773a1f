// SPDX-License-Identifier: Apache-2.0
// The exact product of one lane, shared by q.k and p.v, and exact sums of such products.
//
// A product is mantissa * mantissa << shift with shift 0..58. The shifter moves by the low five bits of the shift only;
// bit 5 chooses one of two sums, worth 1 and 2^32. That halves the shifter, keeps each term within 64 bits, and the
// choice costs nothing: it gates an adder input. The two sums are joined once, where the result is rounded or read.
#pragma once

#include "common/half.hpp"

namespace kvdrive {

// The multiplier's second port: a query half or a probability. |mantissa| < 2^20.
struct Operand {
  ap_int<21> mantissa;
  ap_uint<5> shift;
};

inline Operand to_operand(HalfParts half) {
#pragma HLS INLINE
  return {ap_int<21>(half.mantissa), half.shift};
}

// value * 2^(high ? 32 : 0), |value| < 2^62.
struct Term {
  ap_int<63> value;
  bool high;
};

// Plain ints in between: the operands bound them, and software multiplies them at its own speed.
inline Term multiply(const Operand& a, const HalfParts& b) {
#pragma HLS INLINE
  const int product = a.mantissa.to_int() * b.mantissa.to_int();
  const int shift = a.shift.to_int() + b.shift.to_int();
  return {ap_int<63>(product) << (shift & 31), shift >= 32};
}

// low + high * 2^32, exactly.
template <int kLow, int kHigh>
struct SplitSum {
  ap_int<kLow> low;
  ap_int<kHigh> high;
};

template <int kLow, int kHigh>
inline void add_to(SplitSum<kLow, kHigh>& sum, const SplitSum<kLow, kHigh>& addend) {
#pragma HLS INLINE
  sum.low += addend.low;
  sum.high += addend.high;
}

template <int kLow, int kHigh>
inline void add_to(SplitSum<kLow, kHigh>& sum, const Term& term) {
#pragma HLS INLINE
  const ap_int<kLow> low = term.high ? ap_int<kLow>(0) : ap_int<kLow>(term.value);
  const ap_int<kHigh> high = term.high ? ap_int<kHigh>(term.value) : ap_int<kHigh>(0);
  sum.low += low;
  sum.high += high;
}

template <typename Sum, typename Addend>
inline Sum add(Sum sum, const Addend& addend) {
#pragma HLS INLINE
  add_to(sum, addend);
  return sum;
}

template <int kWidth, int kLow, int kHigh>
inline ap_int<kWidth> join(const SplitSum<kLow, kHigh>& sum) {
#pragma HLS INLINE
  ap_int<kWidth> joined = sum.high;
  joined <<= 32;
  joined += ap_int<kWidth>(sum.low);
  return joined;
}

}  // namespace kvdrive
