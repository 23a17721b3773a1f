// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/dots.hpp"

#include <algorithm>
#include <cmath>

namespace kvdrive::fast {

Query::Query(const Kernels& kernels, const std::uint16_t* query, unsigned heads, unsigned numbers)
    : patterns(query),
      g(heads),
      n(numbers),
      finite(std::all_of(query, query + std::size_t{heads} * numbers, is_finite_half)),
      wide(std::size_t{heads} * numbers) {
  kernels.widen(query, heads * numbers, wide);
  for (unsigned h = 0; h < g; ++h) {
    for (unsigned i = 0; i < n; ++i) norm[h] += std::fabs(wide[h * n + i]);
  }
}

}  // namespace kvdrive::fast
