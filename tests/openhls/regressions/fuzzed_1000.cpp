// SPDX-License-Identifier: Apache-2.0
// Found by fuzzing: a volatile number of C was no operand of ap_int.
#include <ap_int.h>
#include <hls_stream.h>

void fuzzed_1000(hls::stream<ap_uint<32> >& out0, const volatile unsigned short* mem_in, int n, ap_int<17> k) {
#pragma HLS INTERFACE m_axi port = mem_in bundle = gmem
  for (int i = 0; i < n; ++i) {
    out0.write(ap_uint<32>(mem_in[i]));
    out0.write(k + mem_in[i + 24]);
  }
}
