// SPDX-License-Identifier: Apache-2.0
// Rows of memory that are changed in place: elements that are read and stored independently of one another, rows that
// have elements in common, and a row that is changed again and again.
#include <ap_int.h>
#include <hls_stream.h>

void in_place(int* rows, short* common, ap_int<12>* again, hls::stream<ap_int<32>>& out, int n) {
#pragma HLS INTERFACE m_axi port = rows bundle = one
#pragma HLS INTERFACE m_axi port = common bundle = one
#pragma HLS INTERFACE m_axi port = again bundle = two
  for (int row = 0; row < n; ++row) {
    for (int column = 0; column < 8; ++column) {
      out.write(rows[row * 8 + column]);
      rows[row * 8 + column] = n + column;
    }
  }
  for (int row = 0; row < n; ++row) {
    for (int column = 0; column < n; ++column) common[row * 8 + column] += row + 1;
  }
  for (int turn = 0; turn < 3; ++turn) {
    for (int i = 0; i < n; ++i) again[i] = again[i] * 3 + turn;
  }
}
