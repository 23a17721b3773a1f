// SPDX-License-Identifier: Apache-2.0
// Dataflow in loops: an iteration starts before the one before it has ended, as far as the stages share nothing else.
#include <ap_int.h>
#include <hls_stream.h>

static void load(const int* memory, int row, short wide[64], ap_uint<5> flags[4]) {
  for (int i = 0; i < 64; ++i) {
#pragma HLS PIPELINE II = 1
    wide[i] = memory[24 * row + i] + row;
  }
  for (int i = 0; i < 4; ++i) {
#pragma HLS PIPELINE II = 1
    flags[i] = row * 3 + i;
  }
}

// Changes one of its inputs, too.
static void mix(short wide[64], ap_uint<5> flags[4], int out[32]) {
  for (int i = 0; i < 32; ++i) {
#pragma HLS PIPELINE II = 2
    const int sum = wide[i] + wide[63 - i];
    wide[i] = sum ^ flags[i & 3];
    out[i] = sum * 3;
  }
}

static void split(const int in[32], int row, hls::stream<int>& even, hls::stream<int>& odd) {
  for (int i = 0; i < 32; ++i) {
#pragma HLS PIPELINE II = 1
    if (i & 1) {
      odd.write(in[i] - row);
    } else {
      even.write(in[i] + row);
    }
  }
}

static void join(hls::stream<int>& even, hls::stream<int>& odd, const short wide[64], hls::stream<ap_int<32>>& out) {
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 2
    const int a = even.read(), b = odd.read();
    out.write(a * 5 - b + wide[i]);
    out.write(wide[63 - i]);
  }
}

// The stages of a call that is repeated.
static void row_of(const int* memory, int row, hls::stream<ap_int<32>>& out) {
#pragma HLS DATAFLOW
  short wide[64];
  ap_uint<5> flags[4];
#pragma HLS ARRAY_PARTITION variable = flags complete
  int sums[32];
#pragma HLS ARRAY_PARTITION variable = sums cyclic factor = 2
  hls::stream<int, 2> even, odd;
  load(memory, row, wide, flags);
  mix(wide, flags, sums);
  split(sums, row, even, odd);
  join(even, odd, wide, out);
}

static void fill(const int* memory, int first, short part[16]) {
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 1
    part[i] = memory[first + i];
  }
}

static void keep(const short part[16], int kept[16], int times) {
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 1
    kept[i] += part[i] * times;
  }
}

// Some numbers stay from one iteration to the next.
static void change(int row, short some[16]) {
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 1
    if (row == 0 || (i & 1)) some[i] = row * i + 7;
  }
}

static void show(const short some[16], hls::stream<ap_int<32>>& out) {
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(some[i]);
  }
}

static void triple(short some[16]) {
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 1
    some[i] *= 3;
  }
}

// Two stages of one function and one line.
#define NINEFOLD(some) \
  triple(some);        \
  triple(some)

void two_buffers(const int* memory, int n, hls::stream<ap_int<32>>& out) {
#pragma HLS INTERFACE m_axi port = memory
  for (int row = 0; row < n; ++row) row_of(memory, row, out);
  int kept[16];  // by all iterations: one buffer
  for (int i = 0; i < 16; ++i) kept[i] = n;
  for (int first = 0; first < 8 * n; first += 8) {
#pragma HLS DATAFLOW
    short part[16];
    fill(memory, first, part);
    keep(part, kept, first & 63);
  }
  for (int i = 0; i < 16; ++i) {
#pragma HLS PIPELINE II = 1
    out.write(kept[i]);
  }
  short some[16];
  for (int row = 0; row < n; ++row) {
#pragma HLS DATAFLOW
    change(row, some);
    show(some, out);
  }
  for (int row = 0; row < n; ++row) {
    if (row == 2) continue;
    {
#pragma HLS DATAFLOW
      short new_ones[16];
      change(0, new_ones);
      NINEFOLD(new_ones);
      show(new_ones, out);
    }
  }
}
