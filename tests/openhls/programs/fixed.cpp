// SPDX-License-Identifier: Apache-2.0
// Fixed-point numbers: all modes of rounding and of overflow, mixed operands, constants, words of streams.
#include <ap_fixed.h>
#include <ap_int.h>
#include <hls_stream.h>

using Word = ap_fixed<24, 9>;
using Positive = ap_ufixed<17, 6>;

template <ap_q_mode Q, ap_o_mode O>
static int cut(const Word& word, const Positive& positive) {
  const ap_fixed<9, 5, Q, O> narrow = word;
  const ap_ufixed<8, 5, Q, O> plain = word;
  const ap_fixed<7, 3, Q, O> small = positive;
  const ap_fixed<40, 20, Q, O> wide = positive;
  const ap_fixed<6, 8, Q, O> coarse = word;
  const ap_uint<14> low = wide.range(13, 0);
  return narrow.range(8, 0).to_int() + plain.range(7, 0).to_int() * 3 + small.range(6, 0).to_int() * 5 +
         coarse.range(5, 0).to_int() * 7 + low.to_int();
}

template <ap_o_mode O>
static int cuts(const Word& word, const Positive& positive) {
  return cut<AP_TRN, O>(word, positive) ^ (cut<AP_RND, O>(word, positive) << 1) ^
         (cut<AP_RND_ZERO, O>(word, positive) << 2) ^ (cut<AP_RND_MIN_INF, O>(word, positive) << 3) ^
         (cut<AP_RND_INF, O>(word, positive) << 4) ^ (cut<AP_RND_CONV, O>(word, positive) << 5) ^
         (cut<AP_TRN_ZERO, O>(word, positive) << 6);
}

void fixed(hls::stream<Word>& in, hls::stream<Positive>& other, hls::stream<ap_int<32>>& out, hls::stream<Word>& sums,
           int n, int& offset) {  // a reference that is only read
  Word total = 1.75;
  for (int i = 0; i < n; ++i) {
    const Word word = in.read();
    const Positive positive = other.read();
    out.write(cuts<AP_WRAP>(word, positive));
    out.write(cuts<AP_SAT>(word, positive));
    out.write(cuts<AP_SAT_ZERO>(word, positive));
    out.write(cuts<AP_SAT_SYM>(word, positive));
    out.write(word.to_int() + positive.to_int() * 1000 + (word < positive) * 7 + (word == total) + (positive >= 3) * 9 +
              offset);
    total += word * positive - ap_int<5>(i) + ap_fixed<12, 3, AP_RND>(-0.3);
    const ap_fixed<30, 12, AP_RND_CONV, AP_SAT> mixed = -word + (positive >> 2) - (word << 1);
    sums.write(total + mixed);
  }
}
