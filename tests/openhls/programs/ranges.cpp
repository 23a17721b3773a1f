// SPDX-License-Identifier: Apache-2.0
// Concatenations of ranges, of bits and of numbers, read and assigned: each part is as long as its range.
#include <ap_int.h>
#include <hls_stream.h>

static void swap_bytes(ap_uint<32> x, hls::stream<ap_uint<32> >& out) {
  out.write((x(7, 0), x(15, 8), x(23, 16), x(31, 24)));
}

void ranges(hls::stream<ap_uint<32> >& in, hls::stream<ap_uint<32> >& out, int n) {
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 6
    const ap_uint<32> word = in.read();
    ap_uint<32> x = word;
    ap_int<9> s = word;
    swap_bytes(x, out);
    ap_uint<16> low = (x(4, 0), x(10, 5));
    ap_uint<20> mixed = (x[0], s, x.range(9, 4), x[3]);
    out.write((low, mixed(15, 0)));
    ap_uint<12> a = x;
    ap_uint<12> b = x >> 9;
    (a(7, 3), b(5, 0)) = x;
    out.write((a, b, ap_uint<3>(x)));
    (a, b(9, 2)) = x >> 3;
    const ap_uint<4> at = x;
    out.write((a, b, x(at + 3, at)));
    out.write(ap_uint<32>((s, x(at, 0))));
    out.write(ap_uint<32>((x(at + 1, 1), s)));
  }
}
