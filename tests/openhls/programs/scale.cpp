// SPDX-License-Identifier: Apache-2.0
// One pipelined loop between two streams.
#include <ap_int.h>
#include <hls_stream.h>

void scale(hls::stream<ap_uint<32>>& in, hls::stream<ap_uint<32>>& out, int n, ap_uint<7> factor, ap_int<9> offset) {
#pragma HLS INTERFACE mode = axis port = in
#pragma HLS INTERFACE mode = axis port = out
scale:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(in.read() * factor + offset);
  }
}
