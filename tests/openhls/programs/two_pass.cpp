// SPDX-License-Identifier: Apache-2.0
// Nested loops around a memory: each row is stored, then sent relative to its maximum.
#include <ap_int.h>
#include <hls_stream.h>

void two_pass(hls::stream<ap_uint<24>>& in, hls::stream<ap_uint<24>>& out, int rows, int columns) {
  ap_uint<24> row[64];
#pragma HLS BIND_STORAGE variable = row type = ram_2p impl = bram
rows:
  for (int r = 0; r < rows; ++r) {
    ap_uint<24> most = 0;
  fill:
    for (int c = 0; c < columns; ++c) {
#pragma HLS PIPELINE II = 1
      const ap_uint<24> word = in.read();
      row[c] = word;
      if (word > most) most = word;
    }
  send:
    for (int c = columns - 1; c >= 0; --c) {
#pragma HLS PIPELINE II = 1
      out.write(most - row[c]);
    }
  }
}
