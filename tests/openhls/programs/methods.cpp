// SPDX-License-Identifier: Apache-2.0
// Bits of numbers in another order, and what changes fixed-point numbers in place. What the vendor's headers declare
// and a program only names, is there.
#include <ap_int.h>

template <int W, ap_q_mode Q, ap_o_mode O>
struct Named {};  // with ap_int.h alone

#include <ap_axi_sdata.h>
#include <ap_fixed.h>
#include <hls_stream.h>

template <int W>
void unused(hls::stream<qdma_axis<W, 0, 0, 0>>& in) {
  in.read();
}

template <typename Number>
static int turned(Number number, int places) {
  Number left = number, right = number;
  left.lrotate(places);
  right.rrotate(places);
  number.reverse();
  return (left.to_int() ^ (right.to_int() << 3)) + number.to_int() * 5;
}

template <typename Number>
static int stepped(Number number, int places) {
  number >>= places;
  int hash = (number++).range().to_int();
  hash = 31 * hash + (++number).range().to_int();
  number <<= ap_uint<3>(places);
  hash = 31 * hash + (number--).range().to_int();
  --number;
  return 31 * hash + number.range().to_int();
}

void methods(hls::stream<ap_uint<16>>& in, hls::stream<ap_uint<4>>& amounts, hls::stream<ap_uint<32>>& out,
             hls::stream<qdma_axis<16, 0, 0, 0>>& packets, int n) {
  for (int i = 0; i < n; ++i) {
    const ap_uint<16> word = in.read();
    const int places = amounts.read() % 7;
    const ap_uint<32> hash = turned(word, places) ^ turned(ap_int<7>(word), places) ^ turned(ap_uint<11>(word), places);
    ap_fixed<13, 6> fixed;
    ap_ufixed<11, 8, AP_RND, AP_SAT> positive;
    ap_fixed<9, 9, AP_TRN, AP_SAT_SYM> whole;
    fixed.range() = word;
    positive.range() = word >> 2;
    whole.range() = word >> 5;
    out.write(hash + ap_uint<32>(stepped(fixed, places)) + stepped(positive, places) + stepped(whole, places));
    qdma_axis<16, 0, 0, 0> packet;
    packet.data = hash;
    packet.keep_all();
    packet.last = i == n - 1;
    packets.write(packet);
  }
}
