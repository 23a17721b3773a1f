// SPDX-License-Identifier: Apache-2.0
// What one call of the engine works with.
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

// Large arrays that a job overwrites. They stay with the engine, because fresh pages cost as much as the arithmetic.
struct Scratch {
  std::vector<std::int32_t> scores;
  std::vector<std::uint32_t> index;
};

struct Context {
  const Kernels& kernels;
  Pool& pool;
  Statistics& statistics;
  Scratch& scratch;
};

// Numbers between the scores of two heads: whole blocks, and a quarter page more, so that heads do not share cache
// sets.
constexpr std::size_t head_stride(std::size_t tokens) {
  return ceil_div(tokens, kBlockTokens) * kBlockTokens + 4 * kBlockTokens;
}

// Blocks that a worker takes at once, at least, and what a second worker needs to be worth waking.
constexpr std::size_t kBlocksAtOnce = 8;
constexpr std::size_t kPagesAtOnce = 16;  // the same where K and V lie in pages

// Calls work(worker, first, last) for contiguous parts of `items` until all are done. A worker takes its next part when
// it has finished the last: a slow one delays nobody. Parts are `at_once` of a short job and more of a long one,
// because the first block of a part comes from memory unannounced. Results must not depend on who does what. Returns
// the number of workers.
template <typename Work>
unsigned share(Pool& pool, std::size_t items, std::size_t at_once, Work work) {
  constexpr std::size_t kPartsOfAWorker = 4, kLonger = 4;
  const auto workers = std::max(1U, static_cast<unsigned>(std::min<std::size_t>(items / at_once, pool.workers())));
  const std::size_t part = std::clamp(items / (workers * kPartsOfAWorker), at_once, kLonger * at_once);
  std::atomic<std::size_t> next{0};
  pool.run(workers, [&](unsigned worker) {
    for (std::size_t first = next.fetch_add(part); first < items; first = next.fetch_add(part)) {
      work(worker, first, std::min(first + part, items));
    }
  });
  return workers;
}

}  // namespace kvdrive::fast
