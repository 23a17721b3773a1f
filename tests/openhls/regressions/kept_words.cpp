// SPDX-License-Identifier: Apache-2.0
// Streams that outlive their dataflow region: words that a run leaves are there in the next one.
#include <hls_stream.h>
static void give(hls::stream<int>& in, hls::stream<int, 64>& queue) {
  for (int i = 0; i < 4; i++) queue.write(in.read());
}
static void take(hls::stream<int, 64>& queue, hls::stream<int>& out) {
  for (int i = 0; i < 3; i++) out.write(queue.read());
}
static void region(hls::stream<int>& in, hls::stream<int, 64>& queue, hls::stream<int>& out) {
#pragma HLS DATAFLOW
  give(in, queue);
  take(queue, out);
}
static void always(hls::stream<int>& in, hls::stream<int>& out) {
#pragma HLS DATAFLOW
  static hls::stream<int, 64> kept;
  give(in, kept);
  take(kept, out);
}
void kept_words(hls::stream<int>& in, hls::stream<int>& out) {
  hls::stream<int, 64> queue;
  for (int run = 0; run < 3; run++) region(in, queue, out);
  always(in, out);
}
