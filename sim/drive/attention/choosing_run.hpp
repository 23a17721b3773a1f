// SPDX-License-Identifier: Apache-2.0
// The order of work of policies that choose tokens by an index and then attend to them: SparF and groups.
//
// The index of all heads is requested first. While the chosen tokens of one head arrive, the next head is scored. So
// memory holds the index of all heads, and the chosen tokens of two.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "attention/run.hpp"

namespace kvdrive {

constexpr std::size_t kIndexPieces = 4;   // pieces of the index that are read ahead
constexpr std::size_t kChosenPieces = 6;  // pieces for a head's chosen tokens; two heads are in progress

// A `ChoosingHead` has three steps. ask_for_index(requests) adds requests and returns the device time from which they
// can be read. choose(index) uses their rows, which come next in `index`, and starts to read the chosen tokens when
// they are chosen. attend() returns the head's outcome.
template <typename ChoosingHead>
AttentionOutcome run_choosing(RunContext& context, std::span<const Head> heads, PageSource& pages) {
  std::vector<ChoosingHead> all;
  for (const Head& head : heads) all.emplace_back(context, head, pages);
  std::vector<RowRequest> requests;
  Ns ready = context.ready;
  for (ChoosingHead& head : all) ready = std::max(ready, head.ask_for_index(requests));
  const auto index = pages.read(std::move(requests), ready, kIndexPieces);
  all[0].choose(*index);
  return collect(context, heads, [&](std::size_t i) {
    if (i + 1 < all.size()) all[i + 1].choose(*index);
    return all[i].attend();
  });
}

}  // namespace kvdrive
