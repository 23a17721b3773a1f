// SPDX-License-Identifier: Apache-2.0
// Tops of gemv, one per group size.
#include "gemv/gemv.hpp"

namespace kvdrive {

int gemv_g1(Stream<beat_t>& operands, Stream<beat_t>& beats, Stream<beat_t>& results, int mode, int width, int tokens) {
#pragma HLS INTERFACE mode = axis port = operands
#pragma HLS INTERFACE mode = axis port = beats
#pragma HLS INTERFACE mode = axis port = results
#pragma HLS INTERFACE mode = s_axilite port = mode
#pragma HLS INTERFACE mode = s_axilite port = width
#pragma HLS INTERFACE mode = s_axilite port = tokens
#pragma HLS INTERFACE mode = s_axilite port = return
  return gemv<1>(operands, beats, results, mode, width, tokens);
}

int gemv_g2(Stream<beat_t>& operands, Stream<beat_t>& beats, Stream<beat_t>& results, int mode, int width, int tokens) {
#pragma HLS INTERFACE mode = axis port = operands
#pragma HLS INTERFACE mode = axis port = beats
#pragma HLS INTERFACE mode = axis port = results
#pragma HLS INTERFACE mode = s_axilite port = mode
#pragma HLS INTERFACE mode = s_axilite port = width
#pragma HLS INTERFACE mode = s_axilite port = tokens
#pragma HLS INTERFACE mode = s_axilite port = return
  return gemv<2>(operands, beats, results, mode, width, tokens);
}

int gemv_g4(Stream<beat_t>& operands, Stream<beat_t>& beats, Stream<beat_t>& results, int mode, int width, int tokens) {
#pragma HLS INTERFACE mode = axis port = operands
#pragma HLS INTERFACE mode = axis port = beats
#pragma HLS INTERFACE mode = axis port = results
#pragma HLS INTERFACE mode = s_axilite port = mode
#pragma HLS INTERFACE mode = s_axilite port = width
#pragma HLS INTERFACE mode = s_axilite port = tokens
#pragma HLS INTERFACE mode = s_axilite port = return
  return gemv<4>(operands, beats, results, mode, width, tokens);
}

int gemv_g5(Stream<beat_t>& operands, Stream<beat_t>& beats, Stream<beat_t>& results, int mode, int width, int tokens) {
#pragma HLS INTERFACE mode = axis port = operands
#pragma HLS INTERFACE mode = axis port = beats
#pragma HLS INTERFACE mode = axis port = results
#pragma HLS INTERFACE mode = s_axilite port = mode
#pragma HLS INTERFACE mode = s_axilite port = width
#pragma HLS INTERFACE mode = s_axilite port = tokens
#pragma HLS INTERFACE mode = s_axilite port = return
  return gemv<5>(operands, beats, results, mode, width, tokens);
}

int gemv_g8(Stream<beat_t>& operands, Stream<beat_t>& beats, Stream<beat_t>& results, int mode, int width, int tokens) {
#pragma HLS INTERFACE mode = axis port = operands
#pragma HLS INTERFACE mode = axis port = beats
#pragma HLS INTERFACE mode = axis port = results
#pragma HLS INTERFACE mode = s_axilite port = mode
#pragma HLS INTERFACE mode = s_axilite port = width
#pragma HLS INTERFACE mode = s_axilite port = tokens
#pragma HLS INTERFACE mode = s_axilite port = return
  return gemv<8>(operands, beats, results, mode, width, tokens);
}

}  // namespace kvdrive
