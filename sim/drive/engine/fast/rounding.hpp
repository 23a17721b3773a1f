// SPDX-License-Identifier: Apache-2.0
// Roundings that the vector loops and the exact path share. They have internal linkage on purpose: the source for each
// instruction set compiles its own copy.
#pragma once

#include <cstdint>

namespace kvdrive::fast {

// Adding and subtracting this number rounds a binary64 below 2^51 to an integer, ties to even. The low bits of the sum
// are that integer.
constexpr double kRoundToInteger = 0x1.8p52;

// The score of a dot product, as a binary64 integer plus kRoundToInteger. It is monotone in `dot`.
static inline double biased_score(float dot, float c) {
  const double scaled = static_cast<double>(dot * c) * 0x1p20;
  const double above = scaled < -0x1p31 ? -0x1p31 : scaled;
  const double inside = above > 0x1p31 - 1.0 ? 0x1p31 - 1.0 : above;
  return inside + kRoundToInteger;
}

static inline double biased_score(double dot, float c) { return biased_score(static_cast<float>(dot), c); }

static inline std::int32_t unbias_score(double biased) {
  return static_cast<std::int32_t>(__builtin_bit_cast(std::int64_t, biased));
}

// Rounds |x| <= 65504 to the grid of binary16 (ties to even); the result is still a binary64.
static inline double round_to_half(double x) {
  constexpr std::uint64_t kExponent = 0x7ff0000000000000u;
  constexpr std::uint64_t kSmallestNormal = (1023u - 14u) * 0x10000000000000u;  // 2^-14
  const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, x);
  const std::uint64_t own = bits & kExponent;
  const std::uint64_t exponent = own < kSmallestNormal ? kSmallestNormal : own;
  // 2^(e + 42): its last place is 2^(e - 10), as for a binary16 number of exponent e.
  const double grid = __builtin_bit_cast(double, exponent + (std::uint64_t{42} << 52));
  const double magnitude = __builtin_bit_cast(double, bits & ~(std::uint64_t{1} << 63));
  const double rounded = (magnitude + grid) - grid;
  return x < 0 ? 0.0 - rounded : rounded;
}

// The pattern of a number on the grid of binary16. Both zeros give +0.
static inline std::uint16_t half_pattern(double on_grid) {
  if (on_grid == 0) return 0;
  const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, on_grid);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 48) & 0x8000u);
  const int exponent = static_cast<int>((bits >> 52) & 0x7ff) - 1023;
  const std::uint64_t significand = (std::uint64_t{1} << 52) | (bits & 0xfffffffffffffu);
  if (exponent < -14) return static_cast<std::uint16_t>(sign | (significand >> (28 - exponent)));
  return static_cast<std::uint16_t>(
      sign | ((static_cast<std::uint64_t>(exponent + 15) << 10) + ((significand >> 42) & 0x3ff)));
}

static inline std::uint16_t to_half(double x) { return half_pattern(round_to_half(x)); }

// The pattern of x rounded to binary32. Both zeros give +0.
static inline std::uint32_t to_single(double x) {
  return __builtin_bit_cast(std::uint32_t, static_cast<float>(x) + 0.0f);
}

}  // namespace kvdrive::fast
