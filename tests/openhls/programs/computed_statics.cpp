// SPDX-License-Identifier: Apache-2.0
// Global variables whose initial values constructors and functions compute: tables, and such as change.
#include <ap_int.h>
#include <hls_stream.h>

#include <iostream>

static int square(int x) {
  int sum = 0;
  for (int i = 0; i < x; ++i) sum += x;
  return sum;
}

struct Table {
  int values[16];
  ap_int<11> last;
  Table() : last(-square(9)) {
    for (int i = 0; i < 16; ++i) values[i] = square(i) - 7;
  }
};

static Table kTable;
static int scale = square(5);
static Table changing;
static ap_int<12> pair[2] = {ap_int<12>(square(3)) * ap_int<12>(scale), ap_int<12>(-scale)};

void computed_statics(hls::stream<int>& in, hls::stream<int>& out, int n) {
  static int calls = square(4) + scale;
  for (int i = 0; i < n; ++i) {
    const int word = in.read();
    out.write(kTable.values[word & 15] * scale + kTable.last + pair[word & 1] + changing.values[word & 7] + calls);
    changing.values[word & 15] += 1;
  }
  ++calls;
  scale += 1;
}
