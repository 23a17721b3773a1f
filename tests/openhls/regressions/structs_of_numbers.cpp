// SPDX-License-Identifier: Apache-2.0
#include <ap_int.h>
struct S {
  ap_int<9> a;
  ap_uint<20> b[3];
  ap_int<33> c;
  bool d;
};
void structs_of_numbers(const S* in, S* out, S arr[8], int n) {
#pragma HLS INTERFACE m_axi port = in bundle = a
#pragma HLS INTERFACE m_axi port = out bundle = b
  for (int i = 0; i < n; i++) {
    S s = in[i];
    s.a = -s.a;
    s.b[1] += s.b[0];
    s.c = s.a - s.c;
    s.d = !s.d;
    out[i].a = s.a;
    out[i].b[0] = s.b[2];
    out[i].c = s.c;
    arr[i % 8] = s;
  }
}
