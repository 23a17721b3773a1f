// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/single_kernels.hpp"

namespace kvdrive::fast {

// Maps finite binary32 numbers to unsigned integers in the same order; both zeros map to the same one.
constexpr std::uint32_t order_of_single(std::uint32_t pattern) {
  const std::uint32_t magnitude = pattern & 0x7fffffff, negative = 0 - (pattern >> 31);  // no branch: signs are random
  return 0x80000000 + ((magnitude ^ negative) - negative);
}

// Returns the indices of the k largest of `order`, ascending. Among equal values the lowest index wins. 1 <= k <= size.
std::vector<std::uint32_t> largest_indices(std::span<const std::uint32_t> order, std::uint32_t k);

ArgtopkResult argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type);

}  // namespace kvdrive::fast
