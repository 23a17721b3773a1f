// SPDX-License-Identifier: Apache-2.0
// Streams of blocks between stages, and vectors whose elements are computed side by side.
#include <ap_int.h>
#include <hls_stream.h>
#include <hls_streamofblocks.h>
#include <hls_vector.h>

using Block = short[6];
using Vector = hls::vector<short, 4>;

static void collect(const Vector* in, int n, hls::stream_of_blocks<Block>& blocks, hls::stream<Vector>& sums) {
  for (int i = 0; i < n; ++i) {
    const Vector vector = in[i];
    hls::write_lock<Block> block(blocks);
    for (int j = 0; j < 6; ++j) block[j] = vector[j & 3] * (j + 1);
    sums.write(vector * Vector(3) - i);
  }
}

static void reverse(hls::stream_of_blocks<Block>& from, int n, hls::stream_of_blocks<Block>& to) {
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE
    hls::read_lock<Block> in(from);
    hls::write_lock<Block> out(to);
    for (int j = 0; j < 6; ++j) out[5 - j] = in[j] + i;
  }
}

static void put(hls::stream_of_blocks<Block>& blocks, hls::stream<Vector>& sums, int n, hls::stream<ap_int<16>>& out) {
  for (int i = 0; i < n; ++i) {
    hls::read_lock<Block> block(blocks);
    const Vector sum = sums.read();
    for (int j = 0; j < 6; ++j) out.write(block[j] ^ sum[j & 3]);
    out.write(sum.reduce_add());
  }
}

void blocks(const Vector* in, int n, hls::stream<ap_int<16>>& out) {
#pragma HLS INTERFACE m_axi port = in
#pragma HLS DATAFLOW
  hls::stream_of_blocks<Block> first, second;
  hls::stream<Vector, 8> sums;
  collect(in, n, first, sums);
  reverse(first, n, second);
  put(second, sums, n, out);
}
