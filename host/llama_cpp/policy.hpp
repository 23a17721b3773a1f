// SPDX-License-Identifier: Apache-2.0
// How much of K and V a step reads: everything, or a share of units of tokens, which the drive chooses from a 2-bit
// index of K (docs/guide/long-contexts.md). The numbers are those of the Python runtime's policy groups.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/abi.hpp"

namespace kvdrive::llama {

// Fields of an attention command.
struct UnitChoice {
  std::uint16_t unit = 0, units = 0;  // tokens of a unit, units to choose; 0: all tokens are read
  std::uint16_t limit = 0;            // share of the softmax that may be left unread, in 1/65536; 0: any

  bool chooses() const { return units > 0; }
};

struct Policy {
  bool groups = false;
  std::uint64_t numerator = 1, denominator = 1;  // the share of units that is read
  std::uint16_t limit = 0;                       // see UnitChoice

  UnitChoice choice(std::uint32_t tokens) const {
    constexpr std::uint32_t kUnit = abi::kSpanTokens;
    constexpr std::uint64_t kLeast = 2;  // the first and the last unit are always chosen
    const std::uint64_t units = tokens / kUnit;
    const std::uint64_t chosen = std::max(kLeast, (units * numerator + denominator - 1) / denominator);
    if (!groups || chosen >= units) return {};
    return {.unit = kUnit, .units = static_cast<std::uint16_t>(chosen), .limit = limit};
  }
};

}  // namespace kvdrive::llama
