// SPDX-License-Identifier: Apache-2.0
// Structs in memory that are stored as a whole: field by field, in place, as copies, with a short loop over their
// fields; some bytes of a struct under a condition; and an array that is a stream of structs with padding.
#include <ap_int.h>

struct Pixel {
  unsigned char red, green;
  short depth;
};
struct Row {
  unsigned data[8];
};
struct Padded {
  char c;
  int i;
};

int whole_structs(const Pixel* in, Pixel* out, const Row* rows, Row* sums, Pixel* some, const Padded given[12],
                  Padded padded[12], int n) {
#pragma HLS INTERFACE m_axi port = in bundle = one
#pragma HLS INTERFACE m_axi port = out bundle = two
#pragma HLS INTERFACE m_axi port = rows bundle = one
#pragma HLS INTERFACE m_axi port = sums bundle = two
#pragma HLS INTERFACE m_axi port = some bundle = three
#pragma HLS INTERFACE axis port = given
#pragma HLS INTERFACE axis port = padded
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    out[i].red = in[i].green;
    out[i].depth = in[i].depth ^ n;
    out[i].green = in[i].red + i;
  }
  for (int i = 2; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    const Pixel old = out[i];
    Pixel one;
    one.red = ~old.green;
    one.green = old.depth;
    one.depth = old.red - old.depth;
    out[i] = one;
  }
  if (n & 1) {
    Pixel one = in[n + 3], other = in[7];
    one.depth += other.red;
    out[200] = one;
    out[201] = other;
    one = out[200];
    out[202] = one;
  }
  for (int i = 0; i < n; ++i) {
    Row one = rows[i], sum;
    for (int k = 0; k < 8; ++k) sum.data[k] = one.data[k] * 3 + k;
    sums[i] = sum;
  }
  int total = 0;
  for (int i = 0; i < n; ++i) {
    const short before = out[i].depth;
    out[n >> 1].red = before;
    out[n >> 1].green = i;
    out[n >> 1].depth = before + 1;
    total += 3 * out[i].depth - 2 * out[i].red + 7 * out[i].green;  // perhaps what was just stored
  }
  for (int i = 0; i < n; ++i) {
    some[i].red = i;
    if (some[i].depth & 1) some[i].green = n;
  }
  for (int i = 0; i < 12; ++i) {
#pragma HLS PIPELINE II = 1
    padded[i].c = given[i].c + n;
    padded[i].i = given[i].i * 5 - i;
  }
  return total;
}
