// SPDX-License-Identifier: Apache-2.0
// Arrays that are streams: elements in their order, structs as a whole, in a loop and one by one.
#include <ap_int.h>

struct Pair {
  int a[2];
  int b;
  int c;
};

void sequences(const ap_int<12> in[20], const Pair pairs[20], int out[20], volatile short* four, int n) {
#pragma HLS INTERFACE axis port = in
#pragma HLS INTERFACE ap_fifo port = pairs
#pragma HLS INTERFACE axis port = out
#pragma HLS INTERFACE axis port = four
  int total = four[0] * 3 + four[1];
  for (int i = 0; i < 20; ++i) {
#pragma HLS PIPELINE II = 1
    total += pairs[i].a[0] - pairs[i].a[1] * pairs[i].b + n;
    out[i] = in[i] + total;
  }
}
