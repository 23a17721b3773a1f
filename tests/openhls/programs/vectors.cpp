// SPDX-License-Identifier: Apache-2.0
// Memory of several element sizes, each behind a pointer of its own: whole runs, in place, single elements.
#include <ap_int.h>

struct Pair {
  short low, high;
};

int vectors(const int* a, const int* b, int* sum, signed char* bytes, ap_uint<16>* halves, ap_int<64>* longs,
            const ap_uint<512>* wide, ap_uint<32>* lanes, const Pair* pairs, Pair* copies, int n, bool flag) {
#pragma HLS INTERFACE m_axi port = a bundle = in
#pragma HLS INTERFACE m_axi port = b bundle = in max_read_burst_length = 16 num_read_outstanding = 2
#pragma HLS INTERFACE m_axi port = sum bundle = out
#pragma HLS INTERFACE m_axi port = bytes bundle = bytes
#pragma HLS INTERFACE m_axi port = halves bundle = halves
#pragma HLS INTERFACE m_axi port = longs bundle = out
#pragma HLS INTERFACE m_axi port = wide bundle = wide
#pragma HLS INTERFACE m_axi port = lanes bundle = out max_write_burst_length = 4 num_write_outstanding = 3
#pragma HLS INTERFACE m_axi port = pairs bundle = pairs
#pragma HLS INTERFACE m_axi port = copies bundle = pairs
add:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    sum[i] = a[i] + b[i];
  }
in_place:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    bytes[i] = (signed char)(bytes[i] * 3 + i);
  }
  if (flag) {
  conditional:
    for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
      halves[i] = halves[i] + ap_uint<16>(1);
    }
  }
total:
  ap_int<64> total = 0;
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    if (flag) total += longs[i];
  }
  longs[n] = total;
slices:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    const ap_uint<512> word = wide[i];
    lanes[i] = word.range(31, 0) ^ word.range(511, 480);
  }
whole:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    copies[i] = pairs[63 - i];
  }
  return sum[0] + a[63];
}
