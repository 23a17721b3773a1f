// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/dots.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kvdrive::fast {

namespace {

// The largest power of two that divides finite numbers, or 1 if all of them are zeros.
double unit_of(const std::uint16_t* numbers, unsigned n) {
  std::uint64_t bits = 0;
  for (unsigned i = 0; i < n; ++i) bits |= static_cast<std::uint64_t>(fixed(numbers[i]));
  return bits == 0 ? 1 : std::ldexp(1.0, std::countr_zero(bits) - 24);
}

}  // namespace

Query::Query(const Kernels& kernels, const std::uint16_t* query, unsigned heads, unsigned numbers, RowScale scale)
    : patterns(query),
      g(heads),
      n(numbers),
      factor(scale.factor),
      finite(std::all_of(query, query + std::size_t{heads} * numbers, is_finite_half)),
      wide(std::size_t{heads} * numbers) {
  kernels.widen(query, heads * numbers, wide);
  for (unsigned i = 0; i < g * n && factor != 1; ++i) wide[i] *= factor;
  for (unsigned h = 0; h < g; ++h) {
    for (unsigned i = 0; i < n; ++i) norm[h] += std::fabs(wide[h * n + i]);
    // Half of 2^53 leaves room for the rounding of the bound that is compared.
    exact_below[h] = 0x1p52 * unit_of(query + std::size_t{h} * n, n) * scale.unit;
  }
}

}  // namespace kvdrive::fast
