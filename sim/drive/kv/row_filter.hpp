// SPDX-License-Identifier: Apache-2.0
// Chosen rows only: reads the pages that hold one, then the page filter drops the other rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.hpp"
#include "kv/head_rows.hpp"

namespace kvdrive {

struct FilterCounters {
  std::uint64_t pages = 0;       // read because of a wanted row
  std::uint64_t pages_left = 0;  // not read
  std::uint64_t rows_kept = 0;
  std::uint64_t rows_dropped = 0;  // by the filter, from the pages that were read
  std::uint64_t bytes_kept = 0;
};

class RowFilter {
 public:
  RowFilter(Engine& engine, Ftl& ftl) : engine_(engine), ftl_(ftl) {}

  // Wanted rows of consecutive pages of a list.
  struct Request {
    ListId list = 0;
    std::uint32_t first_page = 0;
    std::uint32_t rows_per_page = 0;
    std::uint32_t row_bytes = 0;
    std::vector<bool> wanted;       // a flag per row from the first page on; rows behind the flags are not wanted
    std::vector<std::byte> behind;  // wanted rows that are in drive memory
  };

  // Rows of the tokens whose flag is set, `wanted` [tokens].
  static Request tokens(const HeadRows& rows, const std::vector<bool>& wanted);
  // Of one embedding-indexed span the dimensions whose flag is set, `wanted` [head_dim]: the chosen rows of page after
  // page, [block tokens] binary16 each.
  static Request dimensions(const HeadRows& rows, const EmbeddingSpan& span, const std::vector<bool>& wanted);

  struct Rows {
    std::vector<std::vector<std::uint8_t>> of;  // each request's rows, one behind the other, in order
    Ns done = 0;
  };

  // All pages that the requests need are read together. Nothing when one is lost.
  std::optional<Rows> run(std::span<const Request> requests, Ns ready);

  const FilterCounters& counters() const { return counters_; }
  // What was filtered elsewhere.
  void count(const FilterCounters& more);

 private:
  // Flags of the rows of the pages that are read.
  std::vector<bool> plan(const Request& request, std::vector<GroupRead>& reads);
  std::vector<std::uint8_t> filter(const Request& request, const std::vector<bool>& flags,
                                   std::span<const std::uint8_t> pages);

  Engine& engine_;
  Ftl& ftl_;
  std::vector<std::uint8_t> contents_;  // pages that were read; kept, because fresh memory costs as much as a copy
  FilterCounters counters_;
};

}  // namespace kvdrive
