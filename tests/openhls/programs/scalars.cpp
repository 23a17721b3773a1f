// SPDX-License-Identifier: Apache-2.0
// Scalars of all kinds, in and out, without a stream.
#include <ap_int.h>

ap_int<13> scalars(bool flag, short a, unsigned char b, ap_uint<1> one, ap_int<70> wide, int& sum, ap_uint<90>& product,
                   ap_int<5>& both) {
  sum = a + b;
  product = wide * a;
  if (flag) both = both - ap_int<5>(b);
  if (one) return wide;
  return -a;
}
