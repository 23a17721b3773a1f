// SPDX-License-Identifier: Apache-2.0
// A wide word taken apart and put together by unrolled loops, a register array indexed at run time, partial unrolling.
#include <ap_int.h>
#include <hls_stream.h>

void lanes(hls::stream<ap_uint<128>>& in, hls::stream<ap_uint<128>>& out, int n, ap_uint<3> pick) {
  ap_uint<16> last[8];
#pragma HLS ARRAY_PARTITION variable = last complete
  for (int i = 0; i < 8; ++i) {
#pragma HLS UNROLL
    last[i] = i;
  }
words:
  for (int w = 0; w < n; ++w) {
#pragma HLS PIPELINE II = 1
    const ap_uint<128> word = in.read();
    ap_uint<128> result = 0;
    for (int i = 0; i < 8; ++i) {
#pragma HLS UNROLL
      const ap_uint<16> lane = word.range(16 * i + 15, 16 * i);
      result.range(16 * i + 15, 16 * i) = lane > last[i] ? ap_uint<16>(lane - last[pick]) : last[7 - i];
      if (lane[i]) last[i] = lane;
    }
    out.write(result);
  }
  ap_uint<16> sum = 0;
  for (int i = 0; i < 8; ++i) {
#pragma HLS UNROLL factor = 4
    sum += last[i];
  }
  out.write(sum);
}
