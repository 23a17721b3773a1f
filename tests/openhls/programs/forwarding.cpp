// SPDX-License-Identifier: Apache-2.0
// Memories that iterations load from and store to, one after the other, at places that repeat.
#include <ap_int.h>
#include <hls_stream.h>

using Words = hls::stream<ap_uint<16>>;

static void weigh(Words& in, int n, ap_uint<64> sums[4], Words& out) {
weigh:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    const ap_uint<16> word = in.read();
    const ap_uint<2> at = word;
    if (word[5] == 0) sums[at] += word;
    out.write(word ^ i);
  }
}

static void pass(Words& in, int n, ap_uint<64> sums[4], Words& out) {
  ap_uint<16> seen[32], line[64], marks[16];
  for (int i = 0; i < 64; ++i) line[i] = 7 * i;
  for (int i = 0; i < 32; ++i) seen[i] = i;
  for (int i = 0; i < 16; ++i) marks[i] = 0;
before:  // stores first
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    const ap_uint<16> word = in.read();
    seen[word & 3] = word + i;
    out.write(seen[(word >> 2) & 3]);
  }
apart:  // three iterations apart
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    line[(i + 3) & 63] = (line[i & 63] ^ seen[i & 31]) + 1;
  }
twice:  // two stores that do not exclude each other
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 2
    const ap_uint<4> at = line[i & 63];
    const ap_uint<16> mark = marks[at] + 3;
    marks[at] = mark;
    if (mark > 6) marks[i & 15] = 1;
  }
  for (int i = 0; i < 16; ++i) out.write(sums[i & 3] + marks[i] + line[i] + line[i + 48]);
}

void forwarding(Words& in, ap_uint<64> sums[4], Words& again, Words& out, Words& more, int n) {
  weigh(in, n, sums, out);
  pass(again, n, sums, more);
}
