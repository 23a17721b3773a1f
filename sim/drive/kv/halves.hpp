// SPDX-License-Identifier: Apache-2.0
// Rows of binary16 as the drive checks and sums them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvdrive {

// No Inf, no NaN. `rows` holds whole binary16 values, at any address.
bool all_finite(std::span<const std::byte> rows);

// Adds (or takes away) whole rows to the sums of their columns, exactly. LSB 2^-24.
void add_rows(std::span<const std::byte> rows, std::span<std::int64_t> sums, int sign);

}  // namespace kvdrive
