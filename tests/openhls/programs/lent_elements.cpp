// SPDX-License-Identifier: Apache-2.0
// Elements of arrays, and parts of one, that stages get: rows of numbers, streams, structs and scalars.
#include <hls_stream.h>

struct Pair {
  int low, high;
};

static void fill(hls::stream<int>& in, int* row, Pair& pair) {
  pair.low = in.read();
  for (int i = 0; i < 8; ++i) row[i] = in.read() - pair.low;
  pair.high = row[7];
}

static void half(hls::stream<int>& in, int* part) {
  for (int i = 0; i < 4; ++i) part[i] = in.read() * 3;
}

static void send(const int* row, hls::stream<int>& to, int k) {
  for (int i = 0; i < 8; ++i) to.write(row[(i + k) & 7]);
}

static void join(hls::stream<int> from[2], const int parts[8], hls::stream<int>& out) {
  for (int i = 0; i < 8; ++i) out.write(from[0].read() + 5 * from[1].read() + parts[i]);
}

void lent_elements(hls::stream<int>& in, hls::stream<int>& in2, hls::stream<int>& in3, hls::stream<int>& in4,
                   hls::stream<int>& out, int k, int& low, int& high) {
  int rows[2][8], shifts[2] = {k & 7, 2}, parts[8];
  Pair pairs[2];
  {
#pragma HLS DATAFLOW
    hls::stream<int> between[2];
    fill(in, rows[0], pairs[0]);
    fill(in2, rows[1], pairs[1]);
    half(in3, parts);
    half(in4, parts + 4);
    send(rows[0], between[0], shifts[0]);
    send(rows[1], between[1], shifts[1]);
    join(between, parts, out);
  }
  low = pairs[k & 1].low;
  high = pairs[1].high;
}
