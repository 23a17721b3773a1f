// SPDX-License-Identifier: Apache-2.0
// Arrays of streams: as arguments of the top, between stages, and the rest of an array; chosen by an index at run time.
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

static void join(hls::stream<Word, 4> lanes[2], hls::stream<Word> out[kLanes], int n, int first) {
  unsigned at = first % kLanes;
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    out[at].write(lanes[i & 1].read());
    at = at == 2 ? 0 : at + 1;
  }
}

static void pass(hls::stream<Word, 4> lanes[2], hls::stream<Word, 4> kept[2], int n) {
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    kept[i & 1].write(lanes[i & 1].read() ^ 5);
  }
}

static void pass_on(hls::stream<Word, 4> lanes[2], hls::stream<Word, 4> kept[2], int n) {
#pragma HLS DATAFLOW
  pass(lanes, kept, n);
}

void stream_arrays(hls::stream<Word> in[kLanes], hls::stream<Word> out[kLanes], int n, unsigned char first) {
#pragma HLS DATAFLOW
  hls::stream<Word, 4> lanes[2];
  static hls::stream<Word, 4> kept[4];
  spread(in, lanes, n);
  pass_on(lanes, kept + 2, n);
  join(kept + 2, out, n, first);
}
