// SPDX-License-Identifier: Apache-2.0
// A little of everything that hardware can get wrong: it must notice each fault that test_sabotage.py puts in.
#include <ap_int.h>
#include <hls_stream.h>

typedef hls::stream<ap_uint<32> > Words;

// Recurrences through an array, late and conditional reads, writes in both branches.
static void first(Words& in, Words& extra, Words& out, Words& odd, int n, int k) {
  ap_int<20> seen[16];
  ap_int<20> recent[16];
#pragma HLS ARRAY_PARTITION variable = recent cyclic factor = 2
clear:
  for (int i = 0; i < 16; ++i) {
    seen[i] = i;
    recent[i] = -i;
  }
  ap_int<24> sum = k;
words:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    const ap_uint<32> word = in.read();
    const ap_uint<4> bin = word;
    const ap_int<20> low = word >> 3;
    const ap_int<20> before = seen[bin];
    seen[bin] = before + low;
    sum += (before >> ap_uint<2>(word >> 5)) - low;
    if (low < sum) {
      out.write(word - ap_uint<32>(ap_int<32>(sum)));
    } else {
      out.write(word ^ ap_uint<32>(ap_int<32>(before)));
    }
  }
late:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    const ap_uint<32> square = sum * ap_int<24>(i);
    ap_uint<32> more = 3;
    if (square[5]) more = extra.read();
    out.write(more + ap_uint<32>(ap_int<32>(seen[i & 15])));
    if (more[0]) odd.write(square + i);
  }
shift:
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    const ap_int<20> old = recent[i & 15];
    recent[(i + 3) & 15] = old + seen[i & 15];
    out.write(ap_uint<32>(old));
    if (old[0]) odd.write(ap_uint<32>(old));
    if (old[1]) odd.write(i);
  }
}

// Nested loops with a carried value and an inner loop that may have no iteration.
static void second(Words& in, Words& out, int n, int& odds) {
  ap_int<32> total = 0;
  int inner_sum = 0;
words:
  for (int i = 0; i < 2 * n; ++i) {
#pragma HLS PIPELINE II = 1
    const ap_uint<32> word = in.read();
    total += word;
    out.write(ap_uint<32>(total));
  }
rows:
  for (int i = 0; i < n; ++i) {
    const ap_uint<32> bound = in.read();
  inner:
    for (int j = 0; j < int(ap_uint<3>(bound)); ++j) {
#pragma HLS PIPELINE II = 2
      total = total * 43 + j;
      inner_sum += j;
    }
    out.write(ap_uint<32>(total) + bound);
  }
  odds = inner_sum;
}

static void third(Words& in, Words& out, int n) {
  for (int i = 0; i < 3 * n; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(in.read() % 7);
  }
}

int everything(Words& in, Words& extra, Words& out, Words& odd, int n, int k) {
#pragma HLS DATAFLOW
  hls::stream<ap_uint<32>, 2> values("values");
  hls::stream<ap_uint<32>, 3> sums("sums");
  first(in, extra, values, odd, n, k);
  int odds;
  second(values, sums, n, odds);
  third(sums, out, n);
  return odds;
}
