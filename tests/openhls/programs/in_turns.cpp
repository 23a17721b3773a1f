// SPDX-License-Identifier: Apache-2.0
// Stages that share arrays and pointers: they run one after the other, beside those that only streams connect.
#include <ap_int.h>
#include <hls_stream.h>

static void fill(const int* memory, int n, short a[32], short b[32]) {
  for (int i = 0; i < 32; ++i) {
#pragma HLS PIPELINE II = 1
    const int word = memory[i];
    a[i] = word + n;
    b[31 - i] = word >> 3;
  }
}

static void mix(short a[32], int c[32], hls::stream<ap_int<16>>& out) {
  for (int i = 0; i < 32; ++i) {
#pragma HLS PIPELINE II = 1
    c[i] = a[i ^ 5] * 3;
    if (i & 1) out.write(a[i]);
  }
}

static void forward(hls::stream<ap_int<16>>& in, hls::stream<ap_int<16>>& out) {
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(in.read() ^ 1);
  }
}

static void change(short a[32], short b[32]) {
  for (int i = 0; i < 32; ++i) {
#pragma HLS PIPELINE II = 1
    a[i] = b[i] - i;
  }
}

static void give(const short a[32], const int c[32], int* memory, int n) {
  for (int i = 0; i < 32; ++i) {
#pragma HLS PIPELINE II = 1
    memory[i] = a[i] + c[(i + n) & 31];
  }
}

static void pass(int* memory, int n, hls::stream<ap_int<16>>& out) {
#pragma HLS DATAFLOW
  short a[32], b[32];
  int c[32];
  hls::stream<ap_int<16>, 2> between;
  fill(memory, n, a, b);
  mix(a, c, between);
  forward(between, out);
  change(a, b);
  give(a, c, memory, n);
}

void in_turns(int* memory, int n, hls::stream<ap_int<16>>& out) {
#pragma HLS INTERFACE m_axi port = memory
  for (int i = 0; i < n; ++i) pass(memory, i, out);
}
