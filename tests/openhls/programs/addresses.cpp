// SPDX-License-Identifier: Apache-2.0
// Addresses as values: pointers that are chosen, returned, kept, compared, subtracted, and that move.
#include <hls_stream.h>

struct Node {
  short value;
  Node* next;
};

static int* pick(bool first, int* a, int* b) { return first ? a : b; }

static int* find(int* from, int* end, int key) {
  for (int* at = from; at != end; ++at) {
    if ((*at & 7) == (key & 7)) return at;
  }
  return nullptr;
}

static void reverse(int* first, int* last) {
  while (first < last) {
    const int kept = *first;
    *first++ = *--last;
    *last = kept;
  }
}

static void swap_buffers(hls::stream<int>& in, int* one, int* other, int n) {
  int *now = one, *next = other;
  for (int i = 0; i < n; ++i) {
    const int word = in.read();
    for (int j = 0; j < 8; ++j) {
#pragma HLS PIPELINE II = 1
      next[j] = now[7 - j] + word;
    }
    int* const kept = now;
    now = next;
    next = kept;
  }
}

static int follow(hls::stream<int>& in) {
  Node nodes[8];
  for (int i = 0; i < 8; ++i) {
    nodes[i].value = i * 9 - 5;
    nodes[i].next = i < 7 ? &nodes[(i * 5 + 3) & 7] : nullptr;
  }
  nodes[2].next = &nodes[in.read() & 7];
  int sum = 0, count = 0;
  for (const Node* at = nodes; at && count < 20; at = at->next) sum = 3 * sum + at->value, ++count;
  return sum;
}

static int rows(hls::stream<int>& in, int n) {
  int grid[4][6];
  for (int i = 0; i < 24; ++i) grid[i / 6][i % 6] = i;
  int* row = grid[0];
  int sum = 0;
  for (int i = 0; i < n; ++i) {
    const int word = in.read();
    if (word & 1) row = grid[word >> 1 & 3];
    row[(word >> 3 & 7) % 6] += word;
    sum ^= row[2];
  }
  return sum;
}

void addresses(hls::stream<int>& in, hls::stream<int>& out, int n) {
  int a[8], b[8], c[16];
  int* tables[3] = {a, b, c};
  for (int i = 0; i < 8; ++i) a[i] = i, b[i] = -3 * i;
  for (int* at = c; at != c + 16; ++at) *at = at - c;
  swap_buffers(in, a, b, n);
  reverse(c, c + 16);
  reverse(c + 3, c + 9);
  for (int i = 0; i < n; ++i) {
    const int word = in.read();
    pick(word & 1, a, b)[word >> 1 & 7] += word;
    int* const found = find(c, c + 16, word);
    if (found) *found += 5;
    out.write(found ? found - c : -1);
    out.write(tables[(word & 63) % 3][word >> 8 & 7]);
  }
  int* last = a;
  while (true) {
    const int word = in.read();
    if (word & 1) {
      last = word & 2 ? a : b;
      last[word >> 3 & 7] -= 1;
    } else {
      last = c + 8;
    }
    if (word & 4) break;
  }
  for (int i = 0; i < 8; ++i) out.write(last[i]);
  out.write(follow(in));
  out.write(rows(in, n));
}
