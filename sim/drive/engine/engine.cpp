// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <algorithm>

#include "engine/fast/fast_engine.hpp"

namespace kvdrive {
namespace {

// Computes what an engine leaves to the drive's processor.
fast::FastEngine& processor() {
  static fast::FastEngine kProcessor(1);
  return kProcessor;
}

}  // namespace

std::uint32_t Engine::attend_in(std::span<std::byte> elsewhere, std::uint64_t job) {
  std::ranges::copy(elsewhere, memory().use(elsewhere.size()).begin());
  const std::uint32_t status = attend(job);
  std::ranges::copy(memory().use(elsewhere.size()), elsewhere.begin());
  return status;
}

std::uint32_t Engine::choose_groups(std::uint64_t job, std::span<const std::byte* const> index) {
  return processor().choose_groups_in(memory().used(), job, index);
}

std::uint32_t Engine::ffn(const FfnBlock& block, FfnSum* sums) { return processor().ffn(block, sums); }

}  // namespace kvdrive
