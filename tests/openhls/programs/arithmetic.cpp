// SPDX-License-Identifier: Apache-2.0
// Every operator of ap_int and ap_uint, on mixed widths and signs.
#include <ap_int.h>
#include <hls_stream.h>

template <typename A, typename B>
ap_uint<64> mix(A a, B b) {
  ap_uint<64> hash = 0;
  hash = hash * 31 + ap_uint<64>(a + b);
  hash = hash * 31 + ap_uint<64>(a - b);
  hash = hash * 31 + ap_uint<64>(a * b);
  hash = hash * 31 + ap_uint<64>(a & b);
  hash = hash * 31 + ap_uint<64>(a | b);
  hash = hash * 31 + ap_uint<64>(a ^ b);
  hash = hash * 31 + ap_uint<64>(~a);
  hash = hash * 31 + ap_uint<64>(-a);
  hash = hash * 31 + ((a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a > b) + 16 * (a >= b) + 32 * (a != b));
  hash = hash * 31 + (a == 0 ? ap_uint<64>(0) : ap_uint<64>(b / a));
  hash = hash * 31 + (a == 0 ? ap_uint<64>(0) : ap_uint<64>(b % a));
  return hash;
}

template <typename A>
ap_uint<64> shifts(A a, ap_uint<4> by) {
  ap_uint<64> hash = 0;
  hash = hash * 31 + ap_uint<64>(a << by);
  hash = hash * 31 + ap_uint<64>(a >> by);
  hash = hash * 31 + ap_uint<64>(a >> (int(by) - 8));
  hash = hash * 31 + ap_uint<64>(a << 3);
  hash = hash * 31 + ap_uint<64>(a >> 2);
  hash = hash * 31 + ap_uint<64>(a.range(5, 2));
  hash = hash * 31 + ap_uint<64>(a.range(4, 1) + 1);
  hash = hash * 31 + ap_uint<64>(a.range(7, 3) - by);
  hash = hash * 31 + ap_uint<64>(a.range(7, 3) - 9 * a[2]);
  hash = hash * 31 + (a.range(3, 0) == by) + 2 * (int(by) < a) + 4 * (3u > a) + 8 * (a < by);
  A changed = a;
  changed.range(6, 3) = by;
  changed[1] = by[2];
  hash = hash * 31 + ap_uint<64>(changed);
  ++changed;
  changed -= 3;
  hash = hash * 31 + ap_uint<64>(changed);
  hash = hash * 31 + (int(a.or_reduce()) + 2 * int(a.and_reduce()) + 4 * int(ap_uint<7>(a).xor_reduce()) +
                      8 * a.countLeadingZeros());
  return hash;
}

void arithmetic(hls::stream<ap_uint<80>>& in, hls::stream<ap_uint<64>>& out, int n) {
words:
  for (int i = 0; i < n; ++i) {
    const ap_uint<80> word = in.read();
    const ap_uint<11> u = word;
    const ap_int<11> s = word >> 11;
    const ap_uint<37> v = word >> 22;
    const ap_int<70> t = word >> 5;
    const int c = word >> 40;
    const unsigned char d = word >> 72;
    out.write(mix(u, s) ^ mix(s, v));
    out.write(mix(v, s) ^ mix(s, s));
    out.write(mix(u, c) ^ mix(s, c));
    out.write(mix(s, d) ^ mix(v, d));
    out.write(mix(t, u) ^ mix(t, c));
    out.write(shifts(u, ap_uint<4>(d)) ^ shifts(s, ap_uint<4>(d)));
    out.write(shifts(v, ap_uint<4>(d)) ^ shifts(t, ap_uint<4>(d)));
    const ap_uint<48> both = (u, v);
    out.write(both + c / (d + 1) + c % (d + 1));
  }
}
