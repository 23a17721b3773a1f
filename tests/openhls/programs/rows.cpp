// SPDX-License-Identifier: Apache-2.0
// Rows and columns in memories of their own, whose numbers are no powers of two, also in stages.
#include <ap_int.h>
#include <hls_stream.h>

static void fill(hls::stream<int>& in, int shared[3][5]) {
  for (int r = 0; r < 3; ++r) {
    for (int c = 0; c < 5; ++c) shared[r][c] = in.read();
  }
}
static void drain(int shared[3][5], hls::stream<int>& out, int from) {
  for (int r = 0; r < 3; ++r) {
    for (int c = 0; c < 5; ++c) out.write(shared[(unsigned(r) + unsigned(from)) % 3][c] + shared[r][4 - c]);
  }
}

static void lines(hls::stream<int>& in, hls::stream<int>& out, int n, int from) {
  int buffer[3][5];
#pragma HLS ARRAY_PARTITION variable = buffer complete dim = 1
  int columns[6][3];
#pragma HLS ARRAY_PARTITION variable = columns complete dim = 2
  int cube[3][2][5];
#pragma HLS ARRAY_PARTITION variable = cube complete dim = 1
  for (int r = 0; r < 3; ++r) {
    for (int c = 0; c < 5; ++c) {
#pragma HLS PIPELINE
      const int word = in.read();
      buffer[r][c] = word;
      columns[c][r] = word + 1;
      cube[r][c & 1][c] = word + 2;
      cube[r][(c & 1) ^ 1][c] = word - 2;
    }
  }
  for (int r = 0; r < 6; ++r) columns[5][r % 3] = r;
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE
    const int r = (unsigned(i) + unsigned(from)) % 3, c = i % 5;
    out.write(buffer[r][c] + columns[c][r] + cube[r][i & 1][c] + buffer[1][4 - c] + columns[5][1]);
  }
}

static void stages(hls::stream<int>& in, hls::stream<int>& out, int from) {
#pragma HLS DATAFLOW
  int shared[3][5];
#pragma HLS ARRAY_PARTITION variable = shared complete dim = 1
  fill(in, shared);
  drain(shared, out, from);
}

void rows(hls::stream<int>& in, hls::stream<int>& out, int n, int from) {
  lines(in, out, n, from);
  stages(in, out, from);
}
