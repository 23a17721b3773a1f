// SPDX-License-Identifier: Apache-2.0
// hls_math of integers and fixed point, and all that hls::vector adds up.
#include <ap_fixed.h>
#include <hls_math.h>
#include <hls_stream.h>
#include <hls_vector.h>

using Fixed = ap_fixed<12, 6>;
using Few = ap_ufixed<10, 2>;

void maths(hls::stream<ap_uint<32>>& in, hls::stream<ap_uint<32>>& out, int n) {
  for (int i = 0; i < n; ++i) {
    const ap_uint<32> word = in.read();
    Fixed x;
    Few y;
    x.range(11, 0) = word(11, 0);
    y.range(9, 0) = word(21, 12);
    const ap_uint<15> whole = word(31, 17);
    const Fixed floor = hls::floor(x), up = hls::ceil(x), near = hls::round(x), to_zero = hls::trunc(x);
    const Fixed root = hls::sqrt(x);
    const Few small = hls::sqrt(y);
    out.write(ap_uint<32>((ap_uint<12>(floor.range(11, 0)), ap_uint<12>(up.range(11, 0)))));
    out.write(ap_uint<32>((ap_uint<12>(near.range(11, 0)), ap_uint<12>(to_zero.range(11, 0)))));
    out.write(ap_uint<32>((ap_uint<12>(root.range(11, 0)), ap_uint<10>(small.range(9, 0)))));
    out.write(hls::sqrt(whole));
    const ap_int<9> signed_part = word(8, 0), other = word(17, 9);
    out.write(ap_uint<32>(hls::abs(ap_int<10>(signed_part)) + hls::max(signed_part, other) * 2 +
                          hls::min(signed_part, other) * 4 + (hls::signbit(other) ? 8 : 0)));
    hls::vector<int, 3> lanes = {int(word(7, 0)), int(word(15, 8)), int(word(23, 16))};
    out.write(lanes.reduce_add() + lanes.reduce_max() * 3 + lanes.reduce_min() * 5 + lanes.reduce_xor() * 7 +
              lanes.reduce_and() * 9 + lanes.reduce_or() * 11 + lanes.reduce_mult());
  }
}
