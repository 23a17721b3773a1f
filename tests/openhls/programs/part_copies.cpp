// SPDX-License-Identifier: Apache-2.0
// memcpy and memset of bytes that are no multiple of what the pointers lead to: the first fields of structs, and in
// memory the first half of a word.
#include <ap_int.h>
#include <string.h>

struct Pair {
  int a, b;
};
struct Triple {
  int a, b, c;
};

void part_copies(int x, const int* from, int* to, int* first, int* second, int* third, int* fourth) {
#pragma HLS INTERFACE m_axi port = from
#pragma HLS INTERFACE m_axi port = to
  Pair one, two;
  one.a = x;
  one.b = x + 1;
  two.a = x * 5;
  two.b = x - 6;
  memset(&two, 0, 4);
  memcpy(&one, &two, 4);
  *third = one.a + two.b;
  *fourth = one.b;
  Triple given[2] = {{x, x + 1, x + 2}, {x + 3, x + 4, x + 5}}, taken[2] = {};
  memcpy(taken, given, 16);
  memset(given, 255, 16);
  *first = taken[0].c * 7 + taken[1].a + taken[1].b;
  *second = given[1].a * 3 + given[1].b;
  int few[4] = {1, 2, 3, 4};
  memcpy(few, from, 6);
  for (int i = 0; i < 4; ++i) to[i] = few[i] + x;
}
