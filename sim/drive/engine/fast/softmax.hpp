// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "engine/fast/kernels.hpp"
#include "engine/single_kernels.hpp"

namespace kvdrive::fast {

// M of docs/arithmetic.md, computed from the largest score.
constexpr std::int32_t ceil_score(std::int32_t x) {
  constexpr std::int64_t kOne = std::int64_t{1} << abi::kScoreFractionBits;
  return static_cast<std::int32_t>((x + kOne - 1) >> abi::kScoreFractionBits);
}

SoftmaxResult softmax(const Kernels& kernels, std::span<const std::int32_t> dense, const std::uint8_t* valid,
                      std::span<const std::int32_t> tail);

}  // namespace kvdrive::fast
