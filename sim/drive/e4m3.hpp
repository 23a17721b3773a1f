// SPDX-License-Identifier: Apache-2.0
// Numbers in 8 bits of OFP8 E4M3 (docs/arithmetic.md, Numbers at rest): a sign, four bits of exponent, three of
// fraction.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace kvdrive {

// The bits of a code, at the place that they have in binary16, are the number divided by this.
constexpr unsigned kE4m3Scale = 256;

constexpr std::uint8_t kE4m3Magnitude = 0x7f;  // as a magnitude: no number

// The code's number / kE4m3Scale, as binary16.
constexpr std::uint16_t e4m3_as_half(std::uint8_t code) {
  return static_cast<std::uint16_t>((code & 0x80) << 8 | (code & kE4m3Magnitude) << 7);
}

// The nearest code of a finite binary16 number, ties to even, at most 448. Zeros are +0.
constexpr std::uint8_t e4m3_of(std::uint16_t half) {
  constexpr unsigned kLeastNormal = 0x2400;  // 2^-6
  constexpr unsigned kLargest = 0x7e;
  const unsigned magnitude = half & 0x7fffU;
  const unsigned normal = ((magnitude + 0x3f + (magnitude >> 7 & 1)) >> 7) - (8U << 3);
  // Below 2^-6 codes count units of 2^-9. 2^112 changes the exponent bias from binary16 to binary32, and adding
  // 1.5 * 2^23 rounds to an integer.
  const float units = std::bit_cast<float>(magnitude << 13) * 0x1p121F;
  const auto subnormal = static_cast<unsigned>(std::bit_cast<std::uint32_t>(units + 0x1.8p23F) & 0xf);
  const unsigned code = magnitude < kLeastNormal ? subnormal : std::min(normal, kLargest);
  return static_cast<std::uint8_t>(code == 0 ? 0 : code | (half >> 8 & 0x80U));
}

}  // namespace kvdrive
