// SPDX-License-Identifier: Apache-2.0
// Reads and writes that happen in some iterations only, state across iterations, an early return.
#include <ap_int.h>
#include <hls_stream.h>

int conditional(hls::stream<ap_uint<16>>& in, hls::stream<ap_uint<16>>& flags, hls::stream<ap_uint<20>>& out, int n) {
  if (n == 3) return -1;
  ap_uint<20> total = 0;
  int written = 0;
merge:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    const ap_uint<16> word = in.read();
    if (word[0]) {
      const ap_uint<16> flag = flags.read();
      if (flag > word) {
        total += flag;
      } else if (flag[3]) {
        total -= word;
        out.write(total);
        ++written;
      }
    } else if (word.range(3, 1) == 5) {
      total = 0;
    }
  }
  out.write(total);
  return written;
}
