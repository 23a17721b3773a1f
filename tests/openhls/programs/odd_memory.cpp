// SPDX-License-Identifier: Apache-2.0
// Elements of memory that fill no bytes, and pointers that are scalars: only those of INTERFACE m_axi lead to memory.
#include <ap_int.h>

void odd_memory(const ap_int<6>* few, ap_int<6>* grown, ap_int<20>* middle, ap_uint<12>* plain, int n,
                volatile int* counts, const int* step, int* last, ap_int<7>* both) {
#pragma HLS INTERFACE m_axi port = few bundle = one
#pragma HLS INTERFACE m_axi port = grown bundle = two
#pragma HLS INTERFACE m_axi port = middle bundle = three
#pragma HLS INTERFACE m_axi port = plain bundle = four
#pragma HLS INTERFACE m_axi port = counts bundle = four
  int sum = 0;
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    const ap_int<6> value = few[i] - *step;
    grown[i] = value;
    sum += value;
  }
  for (int i = 0; i < n; ++i) middle[i] = sum - 100000 * i;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 8; ++j) {
#pragma HLS PIPELINE II = 1
      plain[i * 8 + j] = (i ^ j) - n;
    }
  }
  for (int i = 0; i < n; ++i) counts[i] = counts[i] + i;
  *last = sum;
  *both += n;
}
