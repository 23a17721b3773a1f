// SPDX-License-Identifier: Apache-2.0
// Arrays as arguments of the top: ports of memory, in banks, in registers, of structs, with two dimensions, and read
// twice in an iteration.
#include <ap_int.h>

struct Pair {
  short low;
  int high[2];
};
constexpr int kRows = 3;

static void scale(const short row[8], int by, int* sum) {
  int total = 0;
  for (int j = 0; j < 8; ++j) {
#pragma HLS PIPELINE II = 1
    total += row[j] * by;
  }
  *sum = total;
}

void array_ports(const short in[kRows][8], ap_int<5> small[20], Pair pairs[7], unsigned char regs[4], int out[16],
                 int banks[2 * 8], const short twice[16], const int split[16], int n, volatile int* changes) {
#pragma HLS INTERFACE mode = ap_memory port = in
#pragma HLS ARRAY_PARTITION variable = regs complete
#pragma HLS ARRAY_PARTITION variable = banks cyclic factor = 2
#pragma HLS ARRAY_PARTITION variable = split cyclic factor = 2
  int sums[kRows];
  for (int i = 0; i < kRows; ++i) scale(in[i], i + n, &sums[i]);
  for (int i = 0; i < 20; ++i) {
#pragma HLS PIPELINE
    small[i] = small[i] - n + regs[i & 3];
  }
  for (int i = 0; i < 7; ++i) {
    pairs[i].low += pairs[i].high[i & 1];
    if ((i ^ n) & 1) pairs[i].high[1] = sums[i % kRows];
  }
  regs[n & 3] = regs[(n + 1) & 3] + 1;
  regs[2] ^= 5;
  for (int i = 0; i < 8; ++i) {
#pragma HLS PIPELINE II = 1
    out[i] = banks[2 * i] + banks[2 * i + 1];
    banks[2 * i] = i * n;
  }
  out[9] = banks[15] + small[3];
  int total = split[3] + split[5];
  for (int i = 0; i < 7; ++i) {
#pragma HLS PIPELINE II = 1
    total += twice[i] * twice[15 - i] + split[2 * i] * split[2 * i + 1] - split[2 * i + 2] * n;
  }
  out[10] = total + twice[n & 7] * twice[n & 3];
  *changes += out[9];
}
