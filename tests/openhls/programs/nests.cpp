// SPDX-License-Identifier: Apache-2.0
// Nests that become one pipeline each: work before and behind the inner loop, rows that are skipped, three levels.
#include <ap_int.h>
#include <hls_stream.h>

void nests(hls::stream<ap_uint<16>>& in, hls::stream<ap_uint<16>>& starts, hls::stream<ap_uint<16>>& out, int rows,
           int columns) {
row_sums:
  for (int r = 0; r < rows; ++r) {
    const ap_uint<16> start = starts.read();
    ap_uint<16> sum = start;
  sum_row:
    for (int c = 0; c < columns; ++c) {
#pragma HLS PIPELINE II = 1
      sum += in.read() ^ start;
    }
    out.write(sum);
  }
triangle_rows:
  for (int r = 0; r < rows; ++r) {
  triangle:
    for (int c = r; c < columns; ++c) {
#pragma HLS PIPELINE II = 1
      out.write(r * 256 + c);
    }
  }
  ap_uint<16> total = 0;
planes:
  for (int p = 0; p < 3; ++p) {
    total += 7;
  lines:
    for (int r = 0; r < rows; ++r) {
    points:
      for (int c = 0; c < 4; ++c) {
#pragma HLS PIPELINE II = 1
        total += p * 16 + c;
        if (c == p + 1) break;
      }
      total ^= r;
    }
  }
  out.write(total);
}
