// SPDX-License-Identifier: Apache-2.0
// Constant tables of numbers, rows and structs, with constant and with varying indices.
#include <ap_int.h>
#include <hls_stream.h>

namespace shapes {
struct Line {
  short slope;
  unsigned char offsets[2];
  short bias;
};
constexpr int kMatrix[3][4] = {{1, 2, 3, 4}, {-1, -2, -3, -4}, {100, 200, 300, 400}};
constexpr Line kLines[4] = {{3, {1, 2}, -7}, {-5, {3, 4}, 255}, {7, {5, 250}, -256}, {0, {0, 0}, 0}};
}  // namespace shapes

template <int kRow>
static int of_row(int column) {
  static const int kSteps[8] = {0, kRow, 2 * kRow, 5, 1 << kRow, 9, -kRow, 1};
  return kSteps[column & 7] + shapes::kMatrix[kRow][column & 3];
}

void tables(hls::stream<ap_uint<8>>& in, ap_uint<5> count, hls::stream<ap_int<32>>& out) {
  for (int i = 0; i < count; ++i) {
#pragma HLS PIPELINE II = 1
    const ap_uint<8> word = in.read();
    const shapes::Line& line = shapes::kLines[word & 3];
    const int row = (word >> 2) % 3;
    out.write(line.slope * int(word) + line.offsets[(word >> 4) & 1] + line.bias);
    out.write(shapes::kMatrix[row][word & 3] ^ shapes::kMatrix[1][(word >> 5) & 3] ^ shapes::kMatrix[row][2]);
    out.write(of_row<1>(word) - of_row<2>(word >> 3));
  }
}
