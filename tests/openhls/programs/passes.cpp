// SPDX-License-Identifier: Apache-2.0
// A dataflow region in a loop, run with other scalars each time, and a memory that a stage shares with its caller.
#include <ap_int.h>
#include <hls_stream.h>

using Memory = ap_uint<16>[2][32];

static void load(hls::stream<ap_uint<16>>& in, int n, hls::stream<ap_uint<16>>& out) {
load:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(in.read());
  }
}

static void keep(hls::stream<ap_uint<16>>& in, int n, int pass, Memory& memory, ap_uint<16>& most) {
  ap_uint<16> largest = 0;
keep:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    const ap_uint<16> word = in.read();
    memory[0][i] = word;
    if (pass > 0) memory[1][i] = memory[1][i] + word;
    if (word > largest) largest = word;
  }
  if (n > 1) most = largest;
}

static void run_pass(hls::stream<ap_uint<16>>& in, int n, int pass, Memory& memory, ap_uint<16>& most) {
#pragma HLS DATAFLOW
  const int half = pass % 2 == 0 ? n : n / 2;
  hls::stream<ap_uint<16>, 4> words("words");
  load(in, half, words);
  keep(words, half, pass, memory, most);
}

int passes(hls::stream<ap_uint<16>>& in, hls::stream<ap_uint<16>>& out, int n, int count) {
  ap_uint<16> memory[2][32];
#pragma HLS ARRAY_PARTITION variable = memory dim = 1 complete
clear:
  for (int i = 0; i < 32; ++i) {
#pragma HLS PIPELINE II = 1
    memory[0][i] = 0;
    memory[1][i] = i;
  }
  ap_uint<16> most = 7;
each:
  for (int pass = 0; pass < count; ++pass) {
    run_pass(in, n, pass, memory, most);
    if (most > 60000) out.write(most);
  }
send:
  for (int i = 0; i < 32; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(memory[0][i] ^ memory[1][i]);
  }
  return most;
}
