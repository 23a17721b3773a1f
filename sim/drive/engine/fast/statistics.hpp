// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace kvdrive::fast {

// How often binary64 left a rounding undecided since the engine was made.
struct Statistics {
  std::atomic<std::uint64_t> dots_doubted{0};   // computed again with a tighter bound
  std::atomic<std::uint64_t> dots_exact{0};     // those of them that were computed with integers
  std::atomic<std::uint64_t> outputs_exact{0};  // output numbers computed with integers
};

}  // namespace kvdrive::fast
