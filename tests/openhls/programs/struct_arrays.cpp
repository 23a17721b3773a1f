// SPDX-License-Identifier: Apache-2.0
// Arrays of structs with numbers of odd widths as arguments of the top: those that are used move to the front.
#include <ap_int.h>

struct Symbol {
  ap_uint<9> value;
  ap_uint<32> frequency;
};

void struct_arrays(Symbol in[16], Symbol out[16], ap_uint<32> least, int* n) {
  int used = 0;
  for (int i = 0; i < 16; ++i) {
    if (in[i].frequency >= least) {
      out[used] = in[i];
      ++used;
    }
  }
  *n = used;
}
