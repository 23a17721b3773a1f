// SPDX-License-Identifier: Apache-2.0
// hls_math for integers and fixed point. Software builds and the front end of openhls share this file, so both compute
// the same bits. Functions of float and double are those of <cmath>, which hardware has not got.
//
// What does not fit in the type of the result is cut as the type says. sqrt is the largest number of the argument's
// type whose square is not above the argument; of a negative number it is 0.
#pragma once

#include <ap_fixed.h>
#include <ap_int.h>

#include <cmath>

namespace hls {

namespace details {

// The largest number of `Bits` bits whose square is at most `value`, a bit at a time.
template <int Bits>
ap_uint<Bits> root(const ap_uint<2 * Bits>& value) {
  ap_uint<Bits> found = 0;
  ap_uint<Bits + 2> rest = 0;
  for (int i = Bits - 1; i >= 0; --i) {
#pragma HLS UNROLL
    const ap_uint<Bits + 4> more = (ap_uint<Bits + 4>(rest) << 2) | ap_uint<Bits + 4>((value >> (2 * i)) & 3);
    const ap_uint<Bits + 4> step = (ap_uint<Bits + 4>(found) << 2) | ap_uint<Bits + 4>(1);
    const bool fits = more >= step;
    rest = fits ? ap_uint<Bits + 2>(more - step) : ap_uint<Bits + 2>(more);
    found = ap_uint<Bits>((ap_uint<Bits + 1>(found) << 1) | ap_uint<Bits + 1>(fits ? 1 : 0));
  }
  return found;
}

// The root of `value` times 2^-(Width - Integer), as a number of the same form, without its sign.
template <int Width, int Integer>
ap_uint<Width> root_of_fixed(const ap_uint<Width>& value) {
  constexpr int kFraction = Width - Integer;
  constexpr int kWide = Width + (kFraction > 0 ? kFraction : 0) + 1;
  const ap_uint<kWide / 2 * 2> scaled = ap_uint<kWide / 2 * 2>(value) << (kFraction > 0 ? kFraction : 0);
  return ap_uint<Width>(root<kWide / 2>(scaled));
}

}  // namespace details

using std::ceil;
using std::exp;
using std::fabs;
using std::floor;
using std::log;
using std::round;
using std::sqrt;
using std::trunc;

template <typename T>
T abs(const T& x) {
  return x < 0 ? T(-x) : x;
}
template <typename T>
T max(const T& x, const T& y) {
  return x < y ? y : x;
}
template <typename T>
T min(const T& x, const T& y) {
  return y < x ? y : x;
}
template <typename T>
bool signbit(const T& x) {
  return x < 0;
}

template <int W>
ap_uint<W> sqrt(const ap_uint<W>& x) {
  return details::root_of_fixed<W, W>(x);
}
template <int W>
ap_int<W> sqrt(const ap_int<W>& x) {
  return x < 0 ? ap_int<W>(0) : ap_int<W>(details::root_of_fixed<W, W>(ap_uint<W>(x)));
}
template <int W, int I, ap_q_mode Q, ap_o_mode O, int N>
ap_ufixed<W, I, Q, O, N> sqrt(const ap_ufixed<W, I, Q, O, N>& x) {
  static_assert(W >= I, "openhls: sqrt of a number without a bit for 1");
  ap_ufixed<W, I, Q, O, N> result;
  const ap_uint<W> bits = x.range(W - 1, 0);
  result.range(W - 1, 0) = details::root_of_fixed<W, I>(bits);
  return result;
}
template <int W, int I, ap_q_mode Q, ap_o_mode O, int N>
ap_fixed<W, I, Q, O, N> sqrt(const ap_fixed<W, I, Q, O, N>& x) {
  static_assert(W >= I, "openhls: sqrt of a number without a bit for 1");
  ap_fixed<W, I, Q, O, N> result;
  ap_uint<W> bits = x.range(W - 1, 0);
  if (x < 0) bits = 0;
  result.range(W - 1, 0) = details::root_of_fixed<W, I>(bits);
  return result;
}

// A whole number, kept in range as the type says.
#define OPENHLS_ROUNDED(Name, Mode)                                                              \
  template <int W, int I, ap_q_mode Q, ap_o_mode O, int N>                                       \
  ap_fixed<W, I, Q, O, N> Name(const ap_fixed<W, I, Q, O, N>& x) {                               \
    return ap_fixed<W, I, Q, O, N>(ap_fixed<(I > 0 ? I : 1) + 2, (I > 0 ? I : 1) + 2, Mode>(x)); \
  }                                                                                              \
  template <int W, int I, ap_q_mode Q, ap_o_mode O, int N>                                       \
  ap_ufixed<W, I, Q, O, N> Name(const ap_ufixed<W, I, Q, O, N>& x) {                             \
    return ap_ufixed<W, I, Q, O, N>(ap_fixed<(I > 0 ? I : 1) + 2, (I > 0 ? I : 1) + 2, Mode>(x)); \
  }
OPENHLS_ROUNDED(floor, AP_TRN)
OPENHLS_ROUNDED(trunc, AP_TRN_ZERO)
OPENHLS_ROUNDED(round, AP_RND_INF)
#undef OPENHLS_ROUNDED
template <int W, int I, ap_q_mode Q, ap_o_mode O, int N>
ap_fixed<W, I, Q, O, N> ceil(const ap_fixed<W, I, Q, O, N>& x) {
  const ap_fixed<(I > 0 ? I : 1) + 2, (I > 0 ? I : 1) + 2, AP_TRN> below = x;
  return ap_fixed<W, I, Q, O, N>(below == x ? ap_int<(I > 0 ? I : 1) + 3>(below.to_ap_int_base())
                                            : ap_int<(I > 0 ? I : 1) + 3>(below.to_ap_int_base() + 1));
}
template <int W, int I, ap_q_mode Q, ap_o_mode O, int N>
ap_ufixed<W, I, Q, O, N> ceil(const ap_ufixed<W, I, Q, O, N>& x) {
  const ap_fixed<(I > 0 ? I : 1) + 2, (I > 0 ? I : 1) + 2, AP_TRN> below = x;
  return ap_ufixed<W, I, Q, O, N>(below == x ? ap_int<(I > 0 ? I : 1) + 3>(below.to_ap_int_base())
                                             : ap_int<(I > 0 ? I : 1) + 3>(below.to_ap_int_base() + 1));
}

}  // namespace hls
