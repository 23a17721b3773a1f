// SPDX-License-Identifier: Apache-2.0
// Read, add, write of one memory, with indices that repeat.
#include <ap_int.h>
#include <hls_stream.h>

void histogram(hls::stream<ap_uint<8>>& in, hls::stream<ap_uint<12>>& out, int n) {
  ap_uint<12> bins[16];
clear:
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 1
    bins[i] = 0;
  }
count:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE
    const ap_uint<4> bin = in.read();
    bins[bin] = bins[bin] + 1;
  }
send:
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(bins[i]);
  }
}
