// SPDX-License-Identifier: Apache-2.0
// Found by fuzzing: a row of memory was read before the row before it was stored, where both have elements in common.
#include <ap_int.h>
#include <hls_stream.h>

void fuzzed_1357(ap_uint<12>* mem_out, int n, ap_int<17> k) {
#pragma HLS INTERFACE m_axi port = mem_out bundle = gmem
  for (int row = 0; row < n; ++row) {
    for (int column = 0; column < n; ++column) {
      mem_out[row * 8 + column] += ap_uint<12>(k * row);
    }
  }
}
