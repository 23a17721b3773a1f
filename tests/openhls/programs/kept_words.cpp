// SPDX-License-Identifier: Apache-2.0
// Streams that keep a word from one run of a dataflow region to the next, and a static one that keeps it from one call
// to the next; their stages ask for room and for words, and try again where there are none.
#include <hls_stream.h>

using Words = hls::stream<int>;
using Kept = hls::stream<int, 64>;

static void offer(Words& in, Kept& queue, int n) {
  int sent = 0, word = 0;
  bool holds = false;
  while (sent < n) {
#pragma HLS PIPELINE II = 1
    if (!holds) word = in.read();
    holds = !queue.write_nb(word);
    if (!holds) ++sent;
  }
}

static void wait_for_room(Words& in, Kept& queue, int n) {
  for (int i = 0; i < n; ++i) {
    const int word = in.read();
    while (queue.full()) {
    }
    queue.write(word ^ 5);
  }
}

static void take(Kept& queue, Words& out, int n) {
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(queue.read());
  }
}

static void ask(Kept& queue, Words& out, int n) {
  int taken = 0, word = 0;
  while (taken < n) {
#pragma HLS PIPELINE II = 1
    if (queue.read_nb(word)) {
      out.write(word + taken);
      ++taken;
    }
  }
}

static void offered(Words& in, Words& out, Kept& queue, int n) {
#pragma HLS DATAFLOW
  offer(in, queue, n);
  take(queue, out, n - 1);
}

static void asked(Words& in, Words& out, Kept& queue, int n) {
#pragma HLS DATAFLOW
  wait_for_room(in, queue, n);
  ask(queue, out, n - 1);
}

// One more word is left after each call.
static void until_the_next_call(Words& in, Words& out, int n) {
#pragma HLS DATAFLOW
  static Kept queue;
  offer(in, queue, n);
  ask(queue, out, n - 1);
}

void kept_words(Words& in, Words& out, int n, int runs) {
  Kept one, other;
  for (int run = 0; run < runs; ++run) offered(in, out, one, n);
  for (int run = 0; run < runs; ++run) asked(in, out, other, n);
  until_the_next_call(in, out, n);
}
