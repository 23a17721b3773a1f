// SPDX-License-Identifier: Apache-2.0
// The resources that one call of the engine uses.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/fast/job.hpp"
#include "engine/fast/kernels.hpp"
#include "engine/fast/pool.hpp"
#include "engine/fast/statistics.hpp"

namespace kvdrive::fast {

// Large arrays that every job overwrites. The engine keeps them, because fresh pages cost as much as the arithmetic.
struct Scratch {
  std::vector<std::int32_t> scores;
  std::vector<std::uint32_t> index;

  // Room for `count` scores with undefined contents. It never shrinks: the part that grows again would be cleared.
  std::int32_t* room_for_scores(std::size_t count) {
    if (scores.size() < count) scores.resize(count);
    return scores.data();
  }
};

struct Context {
  const Kernels& kernels;
  Pool& pool;
  Statistics& statistics;
  Scratch& scratch;
};

// The distance between the scores of two heads: whole blocks plus a quarter page, so that heads do not share cache
// sets.
constexpr std::size_t head_stride(std::size_t tokens) {
  return ceil_div(tokens, kBlockTokens) * kBlockTokens + 4 * kBlockTokens;
}

// The least number of blocks that a worker takes at once; also the least that makes waking a second worker worthwhile.
constexpr std::size_t kBlocksAtOnce = 8;
constexpr std::size_t kPagesAtOnce = 16;  // the same for K and V in pages

// Calls work(worker, first, last) for contiguous parts of `items` until all are done. A worker takes its next part when
// it has finished its last one, so a slow worker delays nobody. Parts have at least `at_once` items. They are longer at
// the beginning, because the first block of each part comes from memory without prefetch, and get shorter, so that all
// workers end together. Results must not depend on which worker computes a part. Returns the number of workers.
template <typename Work>
unsigned share(Pool& pool, std::size_t items, std::size_t at_once, Work work) {
  constexpr std::size_t kPartsOfAWorker = 4, kLonger = 4;
  const auto workers = std::max(1U, static_cast<unsigned>(std::min<std::size_t>(items / at_once, pool.workers())));
  const auto end_of = [=](std::size_t first) {
    const std::size_t left = items - first;
    return first + std::min(left, std::clamp(left / (workers * kPartsOfAWorker), at_once, kLonger * at_once));
  };
  std::atomic<std::size_t> next{0};
  pool.run(workers, [&](unsigned worker) {
    for (std::size_t first = next.load(); first < items;) {
      const std::size_t end = end_of(first);
      if (!next.compare_exchange_weak(first, end)) continue;
      work(worker, first, end);
      first = next.load();
    }
  });
  return workers;
}

}  // namespace kvdrive::fast
