// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <algorithm>

#include "engine/fast/fast_engine.hpp"

namespace kvdrive {

std::uint32_t Engine::attend_in(std::span<std::byte> elsewhere, std::uint64_t job) {
  std::ranges::copy(elsewhere, memory().use(elsewhere.size()).begin());
  const std::uint32_t status = attend(job);
  std::ranges::copy(memory().use(elsewhere.size()), elsewhere.begin());
  return status;
}

std::uint32_t Engine::choose_groups(std::uint64_t job) {
  static fast::FastEngine processor(1);
  return processor.choose_groups_in(memory().used(), job);
}

}  // namespace kvdrive
