// SPDX-License-Identifier: Apache-2.0
// The rows of chosen tokens: those in groups are requested from a page source, staged rows are in drive memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "attention/job_memory.hpp"
#include "attention/page_source.hpp"
#include "kv/head_rows.hpp"

namespace kvdrive {

// The positions of the bits that are 1 among the first `count`.
inline std::vector<std::uint32_t> ones(const std::byte* bitmap, std::uint32_t count) {
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < count; ++i) {
    if ((std::to_integer<unsigned>(bitmap[i / 8]) >> i % 8 & 1) != 0) numbers.push_back(i);
  }
  return numbers;
}

// The request for the rows of `tokens`, ascending, that are in groups; staged rows are left out. `of`: tokens that
// could have been chosen.
inline RowRequest stored_rows(const HeadRows& rows, const std::vector<std::uint32_t>& tokens, std::uint32_t of) {
  const std::uint32_t per_group = rows.tokens_per_group();
  RowRequest request{.list = rows.list(),
                     .pages = (std::min(of, rows.tokens_in_groups()) + per_group - 1) / per_group,
                     .rows_per_page = per_group,
                     .row_bytes = rows.row_bytes()};
  request.rows.assign(tokens.begin(), std::ranges::lower_bound(tokens, rows.tokens_in_groups()));
  return request;
}

// Calls use(row) for each staged row of these tokens.
template <typename Use>
void each_staged(const HeadRows& rows, const std::vector<std::uint32_t>& tokens, Use use) {
  for (auto token = std::ranges::lower_bound(tokens, rows.tokens_in_groups()); token != tokens.end(); ++token) {
    use(rows.staged().subspan(std::size_t{*token - rows.tokens_in_groups()} * rows.row_bytes(), rows.row_bytes()));
  }
}

// Places the rows of `tokens` one after the other; the batch's next request is stored_rows() of the same tokens.
inline std::uint64_t place_rows(JobMemory& memory, RowBatch& arriving, const HeadRows& rows,
                                const std::vector<std::uint32_t>& tokens) {
  const std::uint64_t address = memory.place(tokens.size() * std::uint64_t{rows.row_bytes()});
  std::byte* to = memory.at(address);
  const auto add = [&](const std::byte* row) {
    std::memcpy(to, row, rows.row_bytes());
    to += rows.row_bytes();
  };
  arriving.next([&](auto, const std::byte* row) { add(row); });
  each_staged(rows, tokens, [&](std::span<const std::byte> row) { add(row.data()); });
  return address;
}

}  // namespace kvdrive
