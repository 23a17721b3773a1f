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

  struct Rows {
    std::vector<std::byte> bytes;  // one behind the other, in order
    Ns done = 0;
  };

  // Rows of the tokens whose flag is set, `wanted` [tokens]. Nothing when a page is lost.
  std::optional<Rows> tokens(const HeadRows& rows, const std::vector<bool>& wanted, Ns ready);

  // Of one embedding-indexed span the dimensions whose flag is set, `wanted` [head_dim]: [chosen][span tokens]
  // binary16.
  std::optional<Rows> dimensions(const HeadRows& rows, const EmbeddingSpan& span, const std::vector<bool>& wanted,
                                 Ns ready);

  const FilterCounters& counters() const { return counters_; }

 private:
  std::optional<Rows> filter(ListId list, std::uint32_t first_page, const std::vector<bool>& wanted,
                             std::uint32_t rows_per_page, std::uint32_t row_bytes, Ns ready);

  Engine& engine_;
  Ftl& ftl_;
  FilterCounters counters_;
};

}  // namespace kvdrive
