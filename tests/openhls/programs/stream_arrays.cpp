// SPDX-License-Identifier: Apache-2.0
// Arrays of streams: as arguments of the top and between stages, chosen by an index at run time.
#include <ap_int.h>
#include <hls_stream.h>

constexpr int kLanes = 3;
using Word = ap_uint<11>;

static void spread(hls::stream<Word> in[kLanes], hls::stream<Word, 4> (&lanes)[2], int n) {
  int lane = 0;
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    lanes[lane].write(in[i % kLanes].read() + i);
    lane = lane == 0 ? 1 : 0;
  }
}

static void join(hls::stream<Word, 4> (&lanes)[2], hls::stream<Word> out[kLanes], int n, int first) {
  unsigned at = first % kLanes;
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    out[at].write(lanes[i & 1].read());
    at = at == 2 ? 0 : at + 1;
  }
}

void stream_arrays(hls::stream<Word> in[kLanes], hls::stream<Word> out[kLanes], int n, unsigned char first) {
#pragma HLS DATAFLOW
  hls::stream<Word, 4> lanes[2];
  spread(in, lanes, n);
  join(lanes, out, n, first);
}
