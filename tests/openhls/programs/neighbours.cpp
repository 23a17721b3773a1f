// SPDX-License-Identifier: Apache-2.0
// Elements next to the one of an index, in rows that are arrays of their own: no address leads into the row before.
#include <ap_int.h>
#include <hls_stream.h>

using Words = hls::stream<ap_uint<16>>;

struct Pair {
  short count;
  short left[8];
  short right[8];
};

void neighbours(Words& in, Words& out) {
  short rows[4][16];
#pragma HLS ARRAY_PARTITION variable = rows complete dim = 1
  Pair pair;
  pair.count = 0;
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 1
    for (int row = 0; row < 4; ++row) {
#pragma HLS UNROLL
      rows[row][i] = in.read();
    }
    if (i < 8) {
      pair.left[i] = rows[0][i] - 1;
      pair.right[i] = rows[1][i] + 1;
      ++pair.count;
    }
  }
  for (int i = 1; i < 15; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(rows[0][i - 1] + rows[0][i + 1]);
    out.write(rows[2][i - 1] - rows[2][i]);
    out.write(rows[3][i + 1] ^ rows[3][i - 1] ^ rows[1][i - 1]);
    rows[2][i - 1] = rows[3][i + 1];
  }
  for (int i = 1; i < pair.count; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(pair.left[i - 1] + pair.right[i - 1]);
    out.write(pair.right[8 - i] ^ pair.left[7 - i]);
  }
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(rows[2][i]);
  }
}
