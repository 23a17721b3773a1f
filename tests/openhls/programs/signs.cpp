// SPDX-License-Identifier: Apache-2.0
// Numbers of different signs that are compared, of widths around those of C, with one another and with numbers of C.
#include <ap_int.h>
#include <hls_stream.h>

template <int A, int B>
static int compared(const ap_uint<70>& word) {
  const ap_uint<A> a = word;
  const ap_int<B> b = word;
  return (a == b) | (a != b) << 1 | (a < b) << 2 | (a <= b) << 3 | (b > a) << 4 | (b == a) << 5;
}

static int with_c(const ap_uint<70>& word) {
  const ap_uint<32> a = word;
  const ap_int<32> b = word;
  const int c = word.to_int();
  const unsigned d = word.to_uint();
  return (a == c) | (a != c) << 1 | (a == -3) << 2 | (a == 3) << 3 | (b == d) << 4 | (c == a) << 5 | (a != -4) << 6 |
         (b == 0xfffffffdu) << 7 | (0 != a) << 8 | (b != 2) << 9;
}

void signs(hls::stream<ap_uint<70>>& in, hls::stream<ap_uint<32>>& out, int n) {
  for (int i = 0; i < n; ++i) {
    ap_uint<70> word = in.read();
    if (i & 1) word = ~ap_uint<70>(word & 3);
    out.write(compared<7, 7>(word) + (compared<31, 31>(word) << 6) + (compared<32, 32>(word) << 12));
    out.write(compared<33, 33>(word) + (compared<47, 40>(word) << 6) + (compared<40, 47>(word) << 12));
    out.write(compared<63, 63>(word) + (compared<64, 64>(word) << 6) + (compared<65, 65>(word) << 12));
    out.write(with_c(word));
    out.write(compared<33, 20>(word) + (compared<20, 33>(word) << 6) + (compared<66, 33>(word) << 12));
  }
}
