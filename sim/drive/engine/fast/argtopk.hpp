// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/single_kernels.hpp"

namespace kvdrive::fast {

// An unsigned integer in the order of finite binary32 numbers, both zeros alike.
constexpr std::uint32_t order_of_single(std::uint32_t pattern) {
  const std::uint32_t magnitude = pattern & 0x7fffffff, negative = 0 - (pattern >> 31);  // no branch: signs are random
  return 0x80000000 + ((magnitude ^ negative) - negative);
}

// Indices of the k largest of `order`, ascending; among equal ones the lowest index wins. 1 <= k <= size.
std::vector<std::uint32_t> largest_indices(std::span<const std::uint32_t> order, std::uint32_t k);

ArgtopkResult argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type);

}  // namespace kvdrive::fast
