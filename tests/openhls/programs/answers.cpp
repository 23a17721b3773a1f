// SPDX-License-Identifier: Apache-2.0
// Loops that go on until enough words have been there, or have found room.
#include <ap_int.h>
#include <hls_stream.h>

using Words = hls::stream<ap_uint<16>>;

static void take(Words& in, int n, Words& out) {
  int got = 0;
take:
  while (got < n) {
#pragma HLS PIPELINE II = 1
    ap_uint<16> word;
    if (in.read_nb(word)) {
      out.write(word * 5);
      ++got;
    }
  }
}

static void give(int n, Words& out) {
  ap_uint<16> next = 3;
  int left = n;
give:
  while (left > 0) {
#pragma HLS PIPELINE II = 1
    if (out.write_nb(next)) {
      next += 7;
      --left;
    }
  }
}

static void hold(Words& in, ap_uint<6> n, Words& out) {
  ap_uint<16> word;
  bool holds = false;
  ap_uint<6> sent = 0;
hold:
  while (sent != n) {
#pragma HLS PIPELINE II = 1
    if (!holds) holds = in.read_nb(word);
    if (holds && out.write_nb(word + sent)) {
      holds = false;
      ++sent;
    }
  }
}

void answers(Words& in, Words& other, int n, Words& out, Words& numbers, Words& held) {
#pragma HLS DATAFLOW
  take(in, n, out);
  give(n, numbers);
  hold(other, n, held);
}
