// SPDX-License-Identifier: Apache-2.0
// Two images in memory are blended row by row, every other row if asked: two pointers in one bundle, elements of 16 and
// 32 bits, registers for every argument.
#include <cstdint>

namespace test {

int blend(const std::uint16_t* dark, const std::uint16_t* light, std::uint32_t* mixed, int rows, int columns,
          int weight, bool skip, int& last) {
#pragma HLS INTERFACE mode = m_axi port = dark bundle = images offset = slave
#pragma HLS INTERFACE mode = m_axi port = light bundle = images offset = slave max_read_burst_length = 16
#pragma HLS INTERFACE mode = m_axi port = mixed bundle = result offset = slave
#pragma HLS INTERFACE mode = s_axilite port = rows
#pragma HLS INTERFACE mode = s_axilite port = columns
#pragma HLS INTERFACE mode = s_axilite port = weight
#pragma HLS INTERFACE mode = s_axilite port = skip
#pragma HLS INTERFACE mode = s_axilite port = last
#pragma HLS INTERFACE mode = s_axilite port = return
  int total = 0;
rows_loop:
  for (int row = 0; row < rows; row += skip ? 2 : 1) {
  columns_loop:
    for (int column = 0; column < columns; ++column) {
#pragma HLS PIPELINE II = 1
      const int at = row * columns + column;
      const std::uint32_t sum = dark[at] * (16 - weight) + light[at] * weight;
      mixed[at] = sum;
      last = static_cast<int>(sum);
      total += static_cast<int>(sum >> 4);
    }
  }
  return total;
}

}  // namespace test
