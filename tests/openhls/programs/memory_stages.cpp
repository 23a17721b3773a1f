// SPDX-License-Identifier: Apache-2.0
// Pointers, moved by an offset, in the stages of dataflow regions that follow one another over the same memory.
#include <ap_int.h>
#include <hls_stream.h>

using Words = hls::stream<ap_uint<64> >;

static void load(const ap_uint<64>* from, int count, Words& out) {
  for (int i = 0; i < count; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(from[i]);
  }
}

static void twist(Words& in, int count, const ap_uint<64>* keys, Words& out) {
  const ap_uint<64> key = keys[1];
  for (int i = 0; i < count; ++i) {
#pragma HLS PIPELINE II = 1
    out.write((in.read() ^ key) + keys[2 * i]);
  }
}

static void store(Words& in, int count, ap_uint<64>* to) {
  for (int i = 0; i < count; ++i) {
#pragma HLS PIPELINE II = 1
    to[i] = in.read();
  }
}

static void pass(const ap_uint<64>* from, const ap_uint<64>* keys, ap_uint<64>* to, int count) {
#pragma HLS DATAFLOW
  Words raw, twisted;
  load(from, count, raw);
  twist(raw, count, keys + 3, twisted);
  store(twisted, count, to);
}

void memory_stages(const ap_uint<64>* from, const ap_uint<64>* unused, const ap_uint<64>* keys, ap_uint<64>* to,
                   int passes, int count) {
#pragma HLS INTERFACE m_axi port = from bundle = gmem offset = slave
#pragma HLS INTERFACE m_axi port = unused bundle = gmem offset = slave
#pragma HLS INTERFACE m_axi port = keys bundle = gmem offset = slave
#pragma HLS INTERFACE m_axi port = to bundle = gmem offset = slave
#pragma HLS INTERFACE s_axilite port = passes
#pragma HLS INTERFACE s_axilite port = return
  for (int i = 0; i < passes; ++i) {
    pass(from + i * 8, keys, to + i * count, count);
  last:
    for (int j = 1; j < count; ++j) {
#pragma HLS PIPELINE II = 1
      to[i * count + j] = to[i * count + j] + keys[j];
    }
  }
}
