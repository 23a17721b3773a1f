// An element of a static array that is only read became a pin of the top.
#include <ap_int.h>
#include <hls_stream.h>

ap_int<40> fuzzed_50(hls::stream<ap_uint<32> >& in0, hls::stream<ap_uint<32> >& in1, hls::stream<ap_uint<32> >& out0,
                     hls::stream<ap_uint<32> >& out1, const ap_uint<64>* mem_in, ap_uint<16>* mem_out, int n,
                     ap_int<17> k) {
#pragma HLS INTERFACE m_axi port = mem_in bundle = mem_in
#pragma HLS INTERFACE m_axi port = mem_out bundle = gmem
  static ap_uint<16> a1[16] = {0, 1, 2, -2, -1, -5, -4, -3, -7, -6, -10, -9, -8, -12, -11, -15};
  static ap_int<32> a2[16] = {0};
#pragma HLS ARRAY_PARTITION variable = a2 block factor = 4
  ap_int<16> v3 =
      ap_uint<1>(ap_int<20>((ap_uint<1>(ap_int<20>(176704))(0, 0), ap_int<15>(ap_uint<20>(k))(2, 1),
                             ap_int<15>(ap_uint<3>(k)).range(14, 8))) <= ap_uint<8>(ap_uint<1>(k) - ap_int<47>(k)));
  ap_int<1> v4 = ap_uint<32>(ap_uint<3>(ap_uint<20>(k) + ap_uint<33>(v3)) ^ ap_int<47>(k));
loop6:
  for (int i5 = 0; i5 < 1; i5 += 1) {
    v3 += ap_int<16>(ap_uint<32>(
        ((ap_int<8>(v4) < ap_uint<32>(v4)) ? ap_int<33>(ap_int<1>(v3)) : ap_int<33>(ap_int<1>(v4))) - ap_int<20>(-1)));
  loop8:
    for (int i7 = 0; i7 < 5; i7 += 1) {
      a2[ap_uint<4>(ap_uint<1>(ap_uint<13>(i7) & ap_int<20>(1)))] = ap_int<32>(ap_int<1>(a1[ap_uint<4>(i5)]));
      v3 = ap_int<16>(ap_int<20>(-1));
    }
  loop10:
    for (int i9 = n - 1; i9 >= 0; i9 -= 1) {
      ap_uint<40> v11 = in1.read();
      if (ap_uint<1>(ap_uint<47>(k) * ap_int<3>(v11)) == ap_uint<32>(a1[ap_uint<4>(i5 + 1)])) continue;
      out0.write(ap_uint<32>(ap_uint<1>(ap_uint<32>(i9) ^ ap_int<13>(ap_int<13>(i5) ^ ap_uint<47>(v4)))));
    }
    ap_int<32> v12 = in1.read();
  }
  if (ap_uint<1>(ap_int<20>(374655) >> ap_uint<5>(ap_uint<32>(v3))) == ap_uint<47>(ap_uint<32>(v4) + ap_int<47>(v4))) {
    a1[ap_uint<4>(ap_uint<1>(ap_uint<1>(v3) >= ap_uint<3>(v3)))] = ap_uint<16>(ap_int<20>(-256651));
  }
  v3 = ap_int<16>(ap_int<33>(~ap_int<20>(969)));
loop14:
  for (unsigned i13 = 0; i13 < unsigned(n); ++i13) {
    out0.write(ap_uint<32>(mem_out[60 + int(i13)]));
    out1.write(ap_uint<32>(mem_in[ap_uint<6>(ap_uint<47>(k)).to_int()]));
  }
  return ap_int<40>(ap_int<3>(ap_uint<1>(-ap_int<32>(v4)) << ap_uint<3>(ap_uint<20>(-ap_int<33>(v4)))));
}
