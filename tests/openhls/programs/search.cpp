// SPDX-License-Identifier: Apache-2.0
// Loops with an exit in the middle, a switch, a table, a do loop, and an array of structs of two dimensions.
#include <ap_int.h>
#include <hls_stream.h>

struct Entry {
  ap_uint<10> key;
  short weight;
};

int search(hls::stream<ap_uint<16>>& in, hls::stream<ap_int<32>>& out, int n, int mode) {
  constexpr int kTable[8] = {3, -1, 4, 1, -5, 9, 2, 600};
  Entry entries[3][8];
fill:
  for (int r = 0; r < 3; ++r) {
  fill_row:
    for (int c = 0; c < 8; ++c) {
#pragma HLS PIPELINE II = 1
      const ap_uint<16> word = in.read();
      entries[r][c].key = word;
      entries[r][c].weight = word >> 3;
    }
  }
  int found = -1;
find:
  for (int i = 0; i < 24; ++i) {
    const Entry entry = entries[i / 8][i % 8];
    if (entry.key == 0) continue;
    if (entry.key % 7 == n) {
      found = i;
      break;
    }
    out.write(entry.weight + kTable[i % 8]);
  }
  int steps = 0;
  int value = n + 6;
  do {
    switch (mode) {
      case 0:
        value -= 3;
        break;
      case 1:
        value = value / 2 - 1;
        break;
      case 7:
        value = value > 10 ? 10 : value - 1;
        break;
      default:
        value = value - 2 - (steps & 1);
    }
    ++steps;
  } while (value > 0);
  out.write(value);
  return found * 100 + steps;
}
