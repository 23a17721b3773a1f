// SPDX-License-Identifier: Apache-2.0
// Found by fuzzing: nothing was left of a loop whose numbers nobody needs, which is no loop at all.
#include <ap_axi_sdata.h>
#include <ap_fixed.h>
#include <ap_int.h>
#include <hls_stream.h>

struct fuzzed_1617_p1 {
  ap_int<1> low;
  ap_int<40> high;
};
ap_int<40> fuzzed_1617(hls::stream<ap_uint<32> >& in0, hls::stream<ap_uint<32> > lanes[2],
                       hls::stream<ap_uint<32> >& out0, hls::stream<ap_uint<32> > slots[2], const ap_int<20>* mem_in,
                       ap_int<12>* mem_out, ap_uint<16> table[4], int n, ap_int<17> k) {
#pragma HLS ARRAY_PARTITION variable = table complete
#pragma HLS INTERFACE m_axi port = mem_in bundle = mem_in
#pragma HLS INTERFACE m_axi port = mem_out bundle = gmem
  fuzzed_1617_p1 p1[8];
  for (int i = 0; i < 8; ++i) {
    p1[i].low = ap_int<1>(i * 5 - 3);
    p1[i].high = ap_int<40>(7 - i * 9);
  }
  static ap_uint<7> s2 = 5;
  ap_uint<1> v3 = ap_int<47>(table[ap_uint<2>(ap_int<13>(ap_uint<32>(k) - ap_int<8>(s2)))]);
  ap_int<5> v4 =
      ap_uint<8>(ap_uint<9>(ap_fixed<9, 3, AP_TRN, AP_SAT_SYM>((ap_fixed<20, 14>(ap_int<12>(ap_int<20>(-1))) >> 4) +
                                                               (ap_fixed<16, 9>(ap_int<9>(ap_uint<13>(s2))) >> 5))
                                .range(8, 0)) ^
                 ap_uint<13>(p1[ap_uint<3>(k + 3)].low));
  ap_uint<1> v5 = ap_uint<3>(~ap_int<20>(0));
  p1[ap_uint<3>(k + 3)].low = ap_int<1>(
      ap_int<13>(p1[ap_uint<3>(ap_uint<33>((ap_int<13>(ap_int<13>(s2)).range(6, 0), ap_uint<7>(ap_int<3>(v4))(6, 0),
                                            ap_int<1>(ap_int<20>(0))(0, 0))))]
                     .low));
loop7:
  for (int i6 = 0; i6 < 1; i6 += 1) {
    ap_int<1> v8 = ap_uint<8>(ap_int<13>(ap_int<33>(s2) & ap_uint<32>(s2)) - ap_uint<20>(v3));
    v3 += ap_uint<1>(ap_uint<20>(v8));
  }
  v4 = ap_int<5>(ap_uint<13>((ap_int<1>(ap_int<32>(ap_uint<3>(k) & ap_uint<13>(k)))(0, 0),
                              ap_uint<1>(ap_uint<3>(p1[ap_uint<3>(k + 1)].high)), ap_int<7>(ap_uint<20>(v5))(3, 2))));
  p1[ap_uint<3>(k)].high =
      ap_int<40>(ap_uint<7>(ap_uint<32>(ap_int<20>((ap_int<13>(ap_int<20>(0)).range(4, 0),
                                                    ap_uint<1>(ap_int<20>(251470)), ap_int<13>(ap_uint<47>(v5)))))
                                .range(6, 0)));
loop10:
  for (int i9 = 0; i9 < n; i9 += 1) {
    slots[n & 1].write(ap_uint<32>(mem_in[int(i9) + 24]));
    out0.write(ap_uint<32>(mem_in[60 + -int(i9)]));
  }
  for (int i11 = 0; i11 < n; ++i11) {
    for (int i12 = 0; i12 < 10; ++i12) {
      slots[n & 1].write(
          ap_uint<32>(mem_in[ap_uint<6>(ap_uint<15>(ap_uint<32>(ap_int<47>(v5)).range(14, 0))).to_int()]));
      mem_out[i12 * 10 + i11] += ap_int<12>(ap_uint<47>(table[ap_uint<2>(ap_int<3>(~ap_uint<1>(i11)))]));
    }
  }
  out0.write(lanes[0].read());
  out0.write(lanes[1].read());
  slots[0].write(7);
  slots[1].write(7);
  return ap_int<40>(((ap_uint<1>((ap_int<7>(ap_int<33>(k))(5, 1), ap_int<1>(ap_int<8>(s2))(0, 0),
                                  ap_uint<13>(ap_int<20>(1))(0, 0))) <= ap_uint<1>(ap_int<20>(0) | ap_int<32>(v5)))
                         ? ap_int<33>(ap_uint<8>(v3))
                         : ap_int<33>(ap_int<8>(k))));
}
