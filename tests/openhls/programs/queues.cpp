// SPDX-License-Identifier: Apache-2.0
// Streams that one function writes and reads: in turn, in one iteration, as a delay line, under conditions, in an
// array, in functions of their own, static, and of structs; in the top and in stages.
#include <ap_int.h>
#include <hls_stream.h>

using Words = hls::stream<ap_int<20>>;
struct Pair {
  short low;
  ap_uint<9> high;
};

template <typename Stream>
static void fill(Words& in, Stream& queue, int count) {
  for (int i = 0; i < count; ++i) {
#pragma HLS PIPELINE II = 1
    queue.write(in.read());
  }
}

template <typename Stream>
static void drain(Stream& queue, Words& out) {
  while (!queue.empty()) {
#pragma HLS PIPELINE II = 1
    out.write(queue.read());
  }
}

// Each word leaves three iterations after it came.
static void delayed(Words& in, int n, Words& out) {
  hls::stream<ap_int<20>, 4> line;
  for (int i = 0; i < n; ++i) {
    line.write(in.read());
    if (i >= 3) out.write(line.read());
  }
  drain(line, out);
}

// Two words an iteration; one is left, and goes with the stream.
static void pairs(Words& in, int n, Words& out) {
  for (int i = 0; i < n; ++i) {
    hls::stream<Pair> both;
    const ap_int<20> word = in.read();
    both.write(Pair{short(word), ap_uint<9>(word)});
    both.write(Pair{short(i), 5});
    const Pair pair = both.read();
    out.write(pair.low - pair.high);
  }
}

// The stream of the top to a stage that has one of its own.
static void stages(Words& in, int n, Words& out) {
#pragma HLS DATAFLOW
  hls::stream<ap_int<20>, 3> middle;
  delayed(in, n, middle);
  pairs(middle, n, out);
}

void queues(Words& in, int n, Words& out) {
  hls::stream<ap_int<20>, 24> plain;
  fill(in, plain, n);
  for (int i = 0; i < n; ++i) out.write(plain.read() + i);

  hls::stream<ap_int<20>> odd;
#pragma HLS STREAM variable = odd depth = 24
  for (int i = 0; i < n; ++i) {
    const ap_int<20> word = in.read();
    if (word[0]) odd.write(word);
  }
  drain(odd, out);

  hls::stream<ap_int<20>, 24> lanes[3];
  for (int i = 0; i < n; ++i) {
    const ap_int<20> word = in.read();
    lanes[ap_uint<20>(word) % 3].write(word);
  }
  for (int lane = 0; lane < 3; ++lane) {
#pragma HLS UNROLL
    drain(lanes[lane], out);
  }

  hls::stream<ap_int<20>> four;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) four.write(in.read());
    for (int j = 0; j < 4; ++j) out.write(four.read() ^ j);
  }

  static hls::stream<ap_int<20>> kept;
  for (int i = 0; i < 5; ++i) kept.write(in.read());
  for (int i = 0; i < 5; ++i) out.write(kept.read());
  stages(in, n, out);
}
