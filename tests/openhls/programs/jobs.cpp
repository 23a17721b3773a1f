// SPDX-License-Identifier: Apache-2.0
// What engines are made of: a job by value to every stage, tables that stages fill and the caller reads, results by
// reference, a region that runs only sometimes, regions in a loop.
#include <ap_int.h>
#include <hls_stream.h>

using Words = hls::stream<ap_uint<16>>;

struct Window {
  ap_int<7> first;
  bool reversed;
};

struct Job {
  ap_uint<5> count;
  Window window;
  ap_uint<70> key;
  unsigned short weights[3];
};

struct Cell {
  ap_uint<16> key;
  short value;
};

static void select(Words& in, Job job, hls::stream<Cell>& cells) {
  for (int i = 0; i < job.count; ++i) {
#pragma HLS PIPELINE II = 1
    const ap_uint<16> word = in.read();
    cells.write({ap_uint<16>(word ^ job.key), short(word - job.window.first)});
  }
  job.count = 0;  // of this copy
}

static void store(hls::stream<Cell>& in, const Job& job, ap_uint<65> mask, Cell cells[2][8], ap_uint<9>& stored,
                  int extremes[2]) {
  stored = 0;
  extremes[0] = extremes[1] = 0;
  for (int i = 0; i < job.count; ++i) {
#pragma HLS PIPELINE II = 1
    const Cell cell = in.read();
    const int place = job.window.reversed ? 7 - i % 8 : i % 8;
    cells[cell.key & 1][place].key = cell.key & mask;
    cells[cell.key & 1][place].value = cell.value * job.weights[i % 3];
    if (cell.value < extremes[0]) extremes[0] = cell.value;
    if (cell.value > extremes[1]) extremes[1] = cell.value;
    ++stored;
  }
}

static void run(Words& in, Job job, Cell cells[2][8], ap_uint<9>& stored, int extremes[2]) {
#pragma HLS DATAFLOW
  hls::stream<Cell, 4> chosen;
  select(in, job, chosen);
  store(chosen, job, (ap_uint<65>(1) << (job.count + 1)) - 1, cells, stored, extremes);
}

void jobs(Words& in, ap_uint<5> count, bool reversed, ap_uint<2> rounds, Words& out) {
  Cell cells[2][8];
#pragma HLS ARRAY_RESHAPE variable = cells complete dim = 1
  Cell spare[2][8];
  for (int i = 0; i < 8; ++i) {
#pragma HLS PIPELINE II = 1
    for (int row = 0; row < 2; ++row) {
#pragma HLS UNROLL
      cells[row][i].key = i + row;
      cells[row][i].value = -i;
      spare[row][i].key = 0;
      spare[row][i].value = 7 * i;
    }
  }
  Job job = {count, {ap_int<7>(count - 20), reversed}, ap_uint<70>(count) << 60 | 0x5aa5, {1, 3, 5}};
  ap_uint<9> stored = 77;
  int extremes[2] = {1, 2};
  for (int round = 0; round < rounds; ++round) {
    if ((round & 1) == 0 || reversed) run(in, job, cells, stored, extremes);
    job.count = stored / 2;
    job.weights[round % 3] += 1;
  }
  for (int i = 0; i < 8; ++i) {
#pragma HLS PIPELINE II = 2
    const int place = stored & 7;
    const Cell& cell = i < 4 ? cells[1][i] : spare[0][place];
    (reversed ? cells : spare)[0][i].value = cell.value + cell.key;
    out.write(cells[0][i].value ^ spare[0][i].value);
    out.write(cell.key);
  }
  out.write(stored);
  out.write(extremes[0] - extremes[1]);
}
