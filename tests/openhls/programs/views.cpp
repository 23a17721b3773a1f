// SPDX-License-Identifier: Apache-2.0
// Pointers in structs and in loops within loops: views of parts of arrays, three buffers in turns, pointers to scalars.
#include <hls_stream.h>

struct View {
  int* data;
  int size;
};

static void look(hls::stream<int>& in, hls::stream<int>& out, int n) {
  int a[8], b[16], x = 3, y = 5;
  for (int i = 0; i < 8; ++i) a[i] = i;
  for (int i = 0; i < 16; ++i) b[i] = -i;
  View views[2] = {{a, 8}, {b + 4, 12}};
  View spare = {b, 4};
  int* scalar = &x;
  for (int i = 0; i < n; ++i) {
    const int word = in.read();
    const View view = word & 1 ? views[word >> 1 & 1] : spare;
    int sum = 0;
    for (int k = 0; k < view.size; ++k) sum += view.data[k];
    out.write(sum);
    if (word & 4) {
      const View kept = views[0];
      views[0] = spare;
      spare = kept;
    }
    if (word & 8) scalar = scalar == &x ? &y : &x;
    *scalar += word;
    view.data[word >> 5 & 3] -= 1;
  }
  out.write(x - 3 * y);
}

static void turn(hls::stream<int>& in, hls::stream<int>& out, int n) {
  int a[8], b[8], c[8];
  for (int i = 0; i < 8; ++i) a[i] = i, b[i] = -i, c[i] = 9 * i;
  int *one = a, *two = b, *three = c;
  for (int i = 0; i < n; ++i) {
    const int* last = three;
    for (int j = 0; j < (i & 3) + 1; ++j) {
      const int word = in.read();
      if (word % 3 == 0) {
        int* const kept = one;
        one = two;
        two = three;
        three = kept;
        last = two;
      } else if (word & 8) {
        last = one + (word >> 4 & 3);
      }
      one[word & 7] += word;
      if (word % 7 == 1) break;
    }
    out.write(last[i & 3]);
    two[i & 7] ^= three[(i + 1) & 7];
  }
  for (int i = 0; i < 8; ++i) out.write(one[i] + 3 * two[i] + 7 * three[i]);
}

void views(hls::stream<int>& in, hls::stream<int>& out, int n) {
  look(in, out, n);
  turn(in, out, n);
}
