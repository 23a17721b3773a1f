// SPDX-License-Identifier: Apache-2.0
// Exact integer arithmetic. It decides where binary64 cannot, and computes values that a job needs only once.
#pragma once

#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "engine/fast/rounding.hpp"
#include "engine/fixed.hpp"
#include "engine/single_kernels.hpp"

namespace kvdrive::fast {

using Integer = __int128;
using Magnitude = unsigned __int128;

inline bool is_finite_half(std::uint16_t h) { return (h & 0x7c00) != 0x7c00; }
inline bool is_finite_single(std::uint32_t pattern) { return (pattern & 0x7f800000) != 0x7f800000; }

inline int bit_width(Magnitude m) {
  const auto high = static_cast<std::uint64_t>(m >> 64);
  return high != 0 ? 64 + std::bit_width(high) : std::bit_width(static_cast<std::uint64_t>(m));
}

// Rounds to odd: keeps at most 50 bits and sets the lowest one if any bit below it was lost. Rounding the result to any
// format of at most 48 bits gives the same as rounding the original.
inline double to_sticky(Magnitude m) {
  const int drop = bit_width(m) - 50;
  if (drop <= 0) return static_cast<double>(static_cast<std::uint64_t>(m));
  const auto kept = static_cast<std::uint64_t>(m >> drop);
  const bool lost = (m & ((Magnitude{1} << drop) - 1)) != 0;
  return std::ldexp(static_cast<double>(kept | (lost ? 1 : 0)), drop);
}

inline double to_sticky(Integer value) {
  return value < 0 ? -to_sticky(-static_cast<Magnitude>(value)) : to_sticky(static_cast<Magnitude>(value));
}

// Returns numerator / denominator, rounded to odd with at least 48 bits. |numerator| < 2^90, 0 < denominator < 2^50.
inline double sticky_ratio(Integer numerator, std::uint64_t denominator) {
  assert(denominator != 0);
  const Magnitude n = numerator < 0 ? -static_cast<Magnitude>(numerator) : static_cast<Magnitude>(numerator);
  const int shift = 49 - (bit_width(n) - std::bit_width(denominator));
  const Magnitude dividend = n << (shift > 0 ? shift : 0);
  const Magnitude divisor = Magnitude{denominator} << (shift < 0 ? -shift : 0);
  const auto quotient = static_cast<std::uint64_t>(dividend / divisor);
  const double ratio = std::ldexp(static_cast<double>(quotient | (dividend % divisor != 0 ? 1 : 0)), -shift);
  return numerator < 0 ? -ratio : ratio;
}

// Returns a number that rounds like sum_i fixed(q[i]) * fixed(k[i * stride]). It is the real value, not in units of
// 2^-48.
inline double sticky_dot(const std::uint16_t* q, const std::uint16_t* k, std::size_t stride, unsigned n) {
  Integer sum = 0;
  for (unsigned i = 0; i < n; ++i) sum += static_cast<Integer>(fixed(q[i])) * fixed(k[i * stride]);
  return to_sticky(sum) * 0x1p-48;
}

// Rounds any binary32 number to binary16. Overflow gives Inf; NaN gives the single NaN of docs/arithmetic.md.
inline std::uint16_t single_to_half(float x) {
  if (std::isnan(x)) return 0x7e00;
  if (std::fabs(x) >= 65520.0f) return x < 0 ? 0xfc00 : 0x7c00;
  return to_half(x);
}

inline Wide to_wide(Integer value) {
  return {static_cast<std::uint64_t>(value), static_cast<std::uint64_t>(value >> 64)};
}

}  // namespace kvdrive::fast
