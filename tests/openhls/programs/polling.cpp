// SPDX-License-Identifier: Apache-2.0
// Accesses that do not wait. What comes out does not depend on when words arrive: words keep to their lanes.
#include <ap_int.h>
#include <hls_stream.h>

using Words = hls::stream<ap_uint<16>>;

// Takes what is there first, and tries to put it out until there is room.
static void merge(Words& left, Words& right, int count, Words& lefts, Words& rights) {
  int from_left = 0;
  int from_right = 0;
  while (from_left < count || from_right < count) {
#pragma HLS PIPELINE II = 1
    ap_uint<16> word;
    if (from_left < count && left.read_nb(word)) {
      lefts.write(word + from_left);
      ++from_left;
    } else if (from_right < count && !right.empty()) {
      rights.write(right.read() - from_right);
      ++from_right;
    }
  }
}

static void offer(Words& in, int count, Words& out) {
  ap_uint<16> held = 0;
  bool holds = false;
  int sent = 0;
  while (sent < count) {
    if (!holds) held = in.read() ^ 5;
    holds = !out.write_nb(held);
    if (!holds) ++sent;
  }
}

static void wait_and_pass(Words& in, int count, Words& out) {
  for (int i = 0; i < count; ++i) {
    while (in.empty()) {
    }
    const ap_uint<16> word = in.read();
    while (out.full()) {
    }
    out.write(word);
  }
}

void polling(Words& left, Words& right, ap_uint<5> count, Words& lefts, Words& rights) {
#pragma HLS DATAFLOW
  hls::stream<ap_uint<16>, 3> merged;
  hls::stream<ap_uint<16>, 2> offered;
  merge(left, right, count, merged, rights);
  offer(merged, count, offered);
  wait_and_pass(offered, count, lefts);
}
