// SPDX-License-Identifier: Apache-2.0
#include "kv/row_filter.hpp"

#include <algorithm>
#include <stdexcept>

namespace kvdrive {
namespace {

// Row i of the filter is row i / parts of the page: rows longer than the filter's longest go through in pieces.
std::vector<std::uint8_t> spread(const std::vector<bool>& flags, std::size_t parts) {
  const std::size_t bits = flags.size() * parts;
  std::vector<std::uint8_t> bitmap((bits + abi::kBeatBits - 1) / abi::kBeatBits * abi::kBeatBytes);
  for (std::size_t i = 0; i < bits; ++i) {
    if (flags[i / parts]) bitmap[i / 8] |= static_cast<std::uint8_t>(1U << i % 8);
  }
  return bitmap;
}

}  // namespace

std::optional<RowFilter::Rows> RowFilter::tokens(const HeadRows& rows, const std::vector<bool>& wanted, Ns ready) {
  const std::size_t stored = std::min<std::size_t>(wanted.size(), rows.tokens_in_groups());
  std::vector<bool> in_groups(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(stored));
  auto result = filter(rows.list(), 0, in_groups, rows.tokens_per_group(), rows.row_bytes(), ready);
  if (!result) return result;
  for (std::size_t token = stored; token < wanted.size(); ++token) {
    if (!wanted[token]) continue;
    const auto row = rows.tail().subspan((token - rows.tokens_in_groups()) * rows.row_bytes(), rows.row_bytes());
    result->bytes.insert(result->bytes.end(), row.begin(), row.end());
  }
  return result;
}

std::optional<RowFilter::Rows> RowFilter::dimensions(const HeadRows& rows, const EmbeddingSpan& span,
                                                     const std::vector<bool>& wanted, Ns ready) {
  return filter(rows.embedding_list(), span.first_page, wanted, span.rows_per_page, span.row_bytes(), ready);
}

// `wanted`: a flag per row from the first page on; rows behind the flags are not wanted.
std::optional<RowFilter::Rows> RowFilter::filter(ListId list, std::uint32_t first_page, const std::vector<bool>& wanted,
                                                 std::uint32_t rows_per_page, std::uint32_t row_bytes, Ns ready) {
  std::vector<GroupRead> reads;
  std::vector<bool> flags;  // of the pages that are read
  const std::size_t touched = (wanted.size() + rows_per_page - 1) / rows_per_page;
  for (std::size_t page = 0; page < touched; ++page) {
    const auto first = wanted.begin() + static_cast<std::ptrdiff_t>(page * rows_per_page);
    const std::size_t count = std::min<std::size_t>(rows_per_page, wanted.size() - page * rows_per_page);
    const auto last = first + static_cast<std::ptrdiff_t>(count);
    const auto kept = static_cast<std::uint32_t>(std::count(first, last, true));
    if (kept == 0) continue;
    reads.push_back({list, first_page + static_cast<std::uint32_t>(page), nullptr, kept * row_bytes});
    flags.insert(flags.end(), first, last);
    flags.resize(reads.size() * rows_per_page);
  }
  counters_.pages += reads.size();
  counters_.pages_left += touched - reads.size();
  if (reads.empty()) return Rows{{}, ready};

  std::vector<std::uint8_t> contents(reads.size() * abi::kPageBytes);
  for (std::size_t i = 0; i < reads.size(); ++i) {
    reads[i].out = reinterpret_cast<std::byte*>(contents.data() + i * abi::kPageBytes);
  }
  const auto read = ftl_.read(reads, ready, Sink::kComputer);
  if (!read.whole) return std::nullopt;
  const std::uint32_t parts = (row_bytes + abi::kMaxRowBytes - 1) / abi::kMaxRowBytes;
  const auto filtered =
      engine_.page_filter(contents, spread(flags, parts), static_cast<std::uint32_t>(flags.size()) * parts,
                          row_bytes / parts, abi::kPageBytes);
  if (filtered.status != 0) throw std::runtime_error("the page filter refused its pages");
  counters_.rows_kept += filtered.rows_kept / parts;
  counters_.rows_dropped += (filtered.rows_seen - filtered.rows_kept) / parts;
  counters_.bytes_kept += filtered.rows.size();
  const auto bytes = std::as_bytes(std::span(filtered.rows));
  return Rows{{bytes.begin(), bytes.end()}, read.done};
}

}  // namespace kvdrive
