// SPDX-License-Identifier: Apache-2.0
#include <hls_stream.h>
// Essence of finn-hlslib's ConvLayer_Batch (tb/conv_top.cpp): the top has DATAFLOW, its only stage has streams of its
// own between functions, with INLINE.
static void first(hls::stream<int>& in, hls::stream<int>& queue) {
  for (int i = 0; i < 4; i++) queue.write(in.read());
}
static void second(hls::stream<int>& queue, hls::stream<int>& out) {
  for (int i = 0; i < 4; i++) out.write(queue.read() + 1);
}
static void layer(hls::stream<int>& in, hls::stream<int>& out) {
#pragma HLS INLINE
  hls::stream<int> queue("queue");
  first(in, queue);
  second(queue, out);
}
void stage_streams(hls::stream<int>& in, hls::stream<int>& out) {
#pragma HLS DATAFLOW
  layer(in, out);
}
