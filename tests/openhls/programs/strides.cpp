// SPDX-License-Identifier: Apache-2.0
// Loops of all shapes over memory: up and down, by steps, rows of a matrix and its columns, none at all.
#include <ap_int.h>
#include <hls_stream.h>

using Words = hls::stream<ap_uint<32> >;

void strides(const int* p, int* q, Words& out, int n, int first, unsigned count, int pitch, ap_uint<8> few) {
#pragma HLS INTERFACE m_axi port = p
#pragma HLS INTERFACE m_axi port = q bundle = other
next:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(p[i + 1]);
  }
inclusive:
  for (int i = first; i <= n; i += 4) {
#pragma HLS PIPELINE II = 1
    out.write(p[i + 8]);
  }
down:
  for (int i = n; i > 0; --i) {
#pragma HLS PIPELINE II = 1
    out.write(p[i]);
  }
down_by_four:
  for (int i = n - 1; i >= first; i -= 4) {
#pragma HLS PIPELINE II = 1
    out.write(p[i + 8]);
  }
unequal:
  for (int i = 0; i != 4 * n; i += 4) {
#pragma HLS PIPELINE II = 1
    out.write(p[100 - i]);
  }
unequal_from_below_zero:
  for (int i = -8; i != 8; i += 4) {
#pragma HLS PIPELINE II = 1
    out.write(p[i + n + 8]);
  }
counted:
  for (unsigned i = 0; i < count; ++i) {
#pragma HLS PIPELINE II = 1
    q[3 * int(i) + 1] = p[2 * int(i)] ^ 5;
  }
narrow:
  for (ap_uint<8> i = 0; i < few; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(p[i]);
  }
rows:
  for (int row = 0; row < n; ++row) {
  row:
    for (int i = 0; i < pitch; ++i) {
#pragma HLS PIPELINE II = 1
      q[row * pitch + i] = p[row * pitch + i] + row;
    }
  }
columns:
  for (int column = 0; column < pitch; ++column) {
  column:
    for (int row = 0; row < n; ++row) {
#pragma HLS PIPELINE II = 1
      out.write(q[row * pitch + column]);
    }
  }
triangle:
  for (int step = 0; step < 4; ++step) {
  stepped:
    for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
      out.write(p[i * step]);
    }
  }
once:
  int i = n;
  do {
#pragma HLS PIPELINE II = 1
    out.write(q[i]);
    i += 2;
  } while (i < first);
}
