// SPDX-License-Identifier: Apache-2.0
// Found by fuzzing: an element of memory was stored before it was read, for the store does not depend on what is read.
#include <ap_int.h>
#include <hls_stream.h>

void fuzzed_1323(hls::stream<ap_uint<32> >& out0, ap_int<12>* mem_out, int n, ap_int<17> k) {
#pragma HLS INTERFACE m_axi port = mem_out bundle = gmem
  for (int row = 0; row < n; ++row) {
    for (int column = 0; column < 8; ++column) {
      out0.write(ap_uint<32>(mem_out[row * 8 + column]));
      mem_out[row * 8 + column] = ap_int<12>(k + column);
    }
  }
}
