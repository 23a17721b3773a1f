// SPDX-License-Identifier: Apache-2.0
// Binary16 numbers as exact integers.
#pragma once

#include <cstdint>

namespace kvdrive {

// The value of a finite binary16 number as an integer with LSB 2^-24.
inline std::int64_t fixed(std::uint16_t half) {
  const int exponent = half >> 10 & 31;
  const std::int64_t fraction = half & 0x3ff;
  const std::int64_t magnitude = exponent == 0 ? fraction : (fraction | 0x400) << (exponent - 1);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace kvdrive
