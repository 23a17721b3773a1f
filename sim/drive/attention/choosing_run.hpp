// SPDX-License-Identifier: Apache-2.0
// The order of work of policies that choose tokens by an index and then attend to them: SparF and groups.
//
// If pages arrive while the engine works, the index of all heads is requested first. The chosen tokens of one head
// arrive while the next head is scored.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "attention/run.hpp"

namespace kvdrive {

constexpr std::size_t kIndexPieces = 4;   // pieces of the index that are read ahead
constexpr std::size_t kChosenPieces = 6;  // pieces for a head's chosen tokens; two heads are in progress

// A `ChoosingHead` has three steps. ask_for_index(requests) adds requests. choose(index) uses their rows, which come
// next in `index`, and starts to read the chosen tokens. attend() returns the head's outcome.
template <typename ChoosingHead>
AttentionOutcome run_choosing(RunContext& context, std::span<const Head> heads, PageSource& pages) {
  std::vector<ChoosingHead> all;
  for (const Head& head : heads) all.emplace_back(context, head, pages);
  std::unique_ptr<RowBatch> index;
  const auto ask_for_index = [&](std::size_t first, std::size_t end) {
    std::vector<RowRequest> requests;
    for (std::size_t i = first; i < end; ++i) all[i].ask_for_index(requests);
    index = pages.read(std::move(requests), context.ready, kIndexPieces);
  };
  if (pages.reads_ahead()) {
    ask_for_index(0, all.size());
    all[0].choose(*index);
    return collect(context, heads, [&](std::size_t i) {
      if (i + 1 < all.size()) all[i + 1].choose(*index);
      return all[i].attend();
    });
  }
  return collect(context, heads, [&](std::size_t i) {
    ask_for_index(i, i + 1);
    all[i].choose(*index);
    return all[i].attend();
  });
}

}  // namespace kvdrive
