// SPDX-License-Identifier: Apache-2.0
// Memory in other pieces than elements: structs of odd sizes, structs that are only read, copies, pointers that move.
#include <ap_int.h>
#include <string.h>

struct Triple {
  int a, b, c;
};
struct Mixed {
  signed char small;
  short large;
};

void pieces(Triple* triples, const Mixed* mixed, int* block, const int* bytes, int n, int count) {
#pragma HLS INTERFACE m_axi port = triples bundle = one
#pragma HLS INTERFACE m_axi port = mixed bundle = two
#pragma HLS INTERFACE m_axi port = block bundle = three
#pragma HLS INTERFACE m_axi port = bytes bundle = two
  int local[24], sum = 0;
  memcpy(local, block, sizeof(local));
  for (int i = 0; i < n; ++i) {
#pragma HLS PIPELINE II = 1
    sum += mixed[i].small * mixed[i].large;
  }
  for (int i = 0; i < n; ++i) {
    Triple one = triples[i];
    one.b += one.a ^ sum;
    triples[i + 1] = one;
    triples[i].c = i;
  }
  const char* moving = reinterpret_cast<const char*>(bytes + 3);
  for (int i = 0; i < 2 * n; ++i) {
    local[i % 24] += *moving;
    moving += 2;
  }
  int* to = block;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < count; ++i) {
#pragma HLS PIPELINE II = 1
      to[i] = local[(i + round) % 24];
    }
    to += count;
  }
  memset(local, 0, 8 * sizeof(int));
  local[9] = sum;
  memcpy(block + 100, local, sizeof(local));
}
