// SPDX-License-Identifier: Apache-2.0
// Variables that outlive a call: numbers, arrays with and without initial values, one for each instance of a template,
// one of a stage; and static tables, which are constant.
#include <ap_int.h>
#include <hls_stream.h>

static ap_uint<9> calls = 500;
static volatile short seen = -2;
short weights[6] = {3, -5, 7, -11, 13, 1};  // nothing changes it: a table

template <int kStep>
static int counted(int by) {
  static int total = kStep;
  total += by * kStep;
  return total;
}

static void delay(hls::stream<ap_int<20>>& in, int n, hls::stream<ap_int<20>>& out) {
  static ap_int<20> last = -7;
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(last);
    last = in.read();
  }
}

static void sum(hls::stream<ap_int<20>>& in, int n, hls::stream<ap_int<32>>& out) {
  static int history[48];
  static ap_int<12> taps[4] = {1, -2, 3, -4};
#pragma HLS ARRAY_PARTITION variable = taps complete
  static int first[5] = {9, 8, 7, 6, 5};
  static const ap_int<10> kScale[8] = {1, -1, 2, -2, 500, -500, 3, 0};
  for (int i = 0; i < n; ++i) {
    const ap_int<20> word = in.read();
    const ap_uint<5> at = word;
    history[at] += word;
    taps[at & 3] = taps[(at + 1) & 3] + 1;
    if (at < 5) first[at] ^= i;
    out.write(history[(at + 3) & 31] + taps[at & 3] * kScale[at & 7] + first[at % 5] + weights[at % 6]);
  }
}

int statics(hls::stream<ap_int<20>>& in, int n, hls::stream<ap_int<32>>& out) {
#pragma HLS DATAFLOW
  hls::stream<ap_int<20>, 4> between;
  delay(in, n, between);
  sum(between, n, out);
  calls += 1;
  seen = seen + n;
  return counted<1>(n) + counted<100>(calls) + seen;
}
