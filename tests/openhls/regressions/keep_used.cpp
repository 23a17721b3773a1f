// SPDX-License-Identifier: Apache-2.0
#include <ap_int.h>
struct Symbol {
  ap_uint<9> value;
  ap_uint<32> frequency;
};
void keep_used(Symbol in[16], Symbol out[16], int* n) {
  int j = 0;
  for (int i = 0; i < 16; i++)
    if (in[i].frequency != 0) {
      out[j] = in[i];
      j++;
    }
  *n = j;
}
