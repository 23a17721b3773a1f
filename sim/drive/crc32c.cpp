// SPDX-License-Identifier: Apache-2.0
#include "crc32c.hpp"

#include <array>

namespace kvdrive {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;
constexpr std::size_t kSlices = 8;
using Tables = std::array<std::array<std::uint32_t, 256>, kSlices>;

// tables[n][b]: the CRC of byte b followed by n zero bytes, so that eight bytes take eight independent look-ups.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (std::size_t n = 1; n < kSlices; ++n) {
    for (std::uint32_t b = 0; b < 256; ++b) {
      const std::uint32_t crc = tables[n - 1][b];
      tables[n][b] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> data) {
  std::uint32_t crc = ~0U;
  std::size_t i = 0;
  const auto byte = [&data](std::size_t at) { return std::to_integer<std::uint32_t>(data[at]); };
  for (; i + kSlices <= data.size(); i += kSlices) {
    std::uint32_t next = 0;
    for (std::size_t n = 0; n < 4; ++n) next ^= kTables[7 - n][((crc >> (8 * n)) ^ byte(i + n)) & 0xff];
    for (std::size_t n = 4; n < 8; ++n) next ^= kTables[7 - n][byte(i + n)];
    crc = next;
  }
  for (; i < data.size(); ++i) crc = (crc >> 8) ^ kTables[0][(crc ^ byte(i)) & 0xff];
  return ~crc;
}

}  // namespace kvdrive
