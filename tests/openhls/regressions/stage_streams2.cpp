// SPDX-License-Identifier: Apache-2.0
#include <hls_stream.h>
static void first2(hls::stream<int>& in, hls::stream<int>& queue) {
  for (int i = 0; i < 4; i++) queue.write(in.read());
}
static void second2(hls::stream<int>& queue, hls::stream<int>& out) {
  for (int i = 0; i < 4; i++) out.write(queue.read() + 1);
}
static void layer2(hls::stream<int>& in, hls::stream<int>& out) {
  hls::stream<int> queue("queue");
  first2(in, queue);
  second2(queue, out);
}
static void last2(hls::stream<int>& in, hls::stream<int>& out) {
  for (int i = 0; i < 4; i++) out.write(3 * in.read());
}
void stage_streams2(hls::stream<int>& in, hls::stream<int>& out) {
#pragma HLS DATAFLOW
  hls::stream<int> mid;
  layer2(in, mid);
  last2(mid, out);
}
