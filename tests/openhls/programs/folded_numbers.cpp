// SPDX-License-Identifier: Apache-2.0
// Floating point that constants alone give: tables that loops fill, in arrays of each call and in static ones.
#include <hls_stream.h>
#include <math.h>

static void sines(short table[32]) {
  for (int i = 0; i < 32; i++) {
    const double angle = 3.14159265358979 * (double)(i - 16) / 32.0;
    table[i] = (short)(32767.0 * sin(angle));
  }
}

static void weights(int table[4][8]) {
  for (int i = 0; i < 4; i++) {
    for (int j = 0; j < 8; j++) {
      const float weight = 0.54f - 0.46f * cosf(0.7f * (float)(8 * i + j)) + (float)pow(1.1, i + j);
      table[i][j] = (int)round(256.0f * weight);
    }
  }
}

void folded_numbers(hls::stream<int>& in, hls::stream<int>& out, int n) {
  short table[32];
  static int rows[4][8];
  sines(table);
  weights(rows);
  for (int i = 0; i < n; i++) {
    const int word = in.read();
    out.write(table[word & 31] * rows[word >> 5 & 3][word >> 7 & 7]);
  }
}
