// SPDX-License-Identifier: Apache-2.0
#include <hls_stream.h>
static void first(hls::stream<int>& in, hls::stream<int>& queue) {
  for (int i = 0; i < 4; i++) queue.write(in.read());
}
static void second(hls::stream<int>& queue, hls::stream<int>& out) {
  for (int i = 0; i < 4; i++) out.write(queue.read() + 1);
}
static void layer(hls::stream<int>& in, hls::stream<int>& out) {
  hls::stream<int> queue("queue");
  first(in, queue);
  second(queue, out);
}
static void last(hls::stream<int>& in, hls::stream<int>& out) {
  for (int i = 0; i < 4; i++) out.write(3 * in.read());
}
void stage_streams2(hls::stream<int>& in, hls::stream<int>& out) {
#pragma HLS DATAFLOW
  hls::stream<int> mid;
  layer(in, mid);
  last(mid, out);
}
