// SPDX-License-Identifier: Apache-2.0
// Checks over rows of binary16, and sums over rows of any format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "formats.hpp"

namespace kvdrive {

// True if no value is Inf or NaN. `rows` holds whole binary16 values at any address.
bool all_finite(std::span<const std::byte> rows);

// The number at position `i` of the rows.
inline std::uint16_t half_at(std::span<const std::byte> rows, std::size_t i) {
  std::uint16_t half = 0;
  std::memcpy(&half, rows.data() + i * sizeof half, sizeof half);
  return half;
}

// Adds the numbers of whole rows to the sums of their columns (`sign` 1), or subtracts them (-1). Exact; LSB 2^-24.
// There are as many sums as a row has numbers.
void add_rows(RowFormat format, std::span<const std::byte> rows, std::span<std::int64_t> sums, int sign);

}  // namespace kvdrive
