// SPDX-License-Identifier: Apache-2.0
#include "kv/row_filter.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

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

RowFilter::Request RowFilter::tokens(const HeadRows& rows, const std::vector<bool>& wanted) {
  const std::size_t stored = std::min<std::size_t>(wanted.size(), rows.tokens_in_groups());
  Request request{.list = rows.list(),
                  .rows_per_page = rows.tokens_per_group(),
                  .row_bytes = rows.row_bytes(),
                  .wanted = {wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(stored)},
                  .behind = {}};
  for (std::size_t token = stored; token < wanted.size(); ++token) {
    if (!wanted[token]) continue;
    const auto row = rows.tail().subspan((token - rows.tokens_in_groups()) * rows.row_bytes(), rows.row_bytes());
    request.behind.insert(request.behind.end(), row.begin(), row.end());
  }
  return request;
}

RowFilter::Request RowFilter::dimensions(const HeadRows& rows, const EmbeddingSpan& span,
                                         const std::vector<bool>& wanted) {
  std::vector<bool> flags;
  for (std::uint32_t page = 0; page < span.pages(); ++page) {
    const auto first = wanted.begin() + span.first_row(page);
    flags.insert(flags.end(), first, first + span.rows_per_page);
  }
  return {.list = rows.embedding_list(),
          .first_page = span.first_page,
          .rows_per_page = span.rows_per_page,
          .row_bytes = span.row_bytes(),
          .wanted = std::move(flags),
          .behind = {}};
}

std::optional<RowFilter::Rows> RowFilter::run(std::span<const Request> requests, Ns ready) {
  std::vector<GroupRead> reads;
  std::vector<std::vector<bool>> flags;
  for (const Request& request : requests) flags.push_back(plan(request, reads));
  Rows rows{{}, ready};
  if (!reads.empty()) {
    contents_.resize(std::max(contents_.size(), reads.size() * abi::kPageBytes));
    for (std::size_t i = 0; i < reads.size(); ++i) {
      reads[i].out = reinterpret_cast<std::byte*>(contents_.data() + i * abi::kPageBytes);
    }
    const auto read = ftl_.read(reads, ready, Sink::kComputer);
    if (!read.whole) return std::nullopt;
    rows.done = read.done;
  }
  std::span<const std::uint8_t> left = contents_;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::size_t bytes = flags[i].size() / requests[i].rows_per_page * abi::kPageBytes;
    rows.of.push_back(filter(requests[i], flags[i], left.first(bytes)));
    left = left.subspan(bytes);
  }
  return rows;
}

void RowFilter::count(const FilterCounters& more) {
  counters_.pages += more.pages;
  counters_.pages_left += more.pages_left;
  counters_.rows_kept += more.rows_kept;
  counters_.rows_dropped += more.rows_dropped;
  counters_.bytes_kept += more.bytes_kept;
}

std::vector<bool> RowFilter::plan(const Request& request, std::vector<GroupRead>& reads) {
  const std::size_t per_page = request.rows_per_page, rows = request.wanted.size();
  const std::size_t touched = (rows + per_page - 1) / per_page, before = reads.size();
  std::vector<bool> flags;
  for (std::size_t page = 0; page < touched; ++page) {
    const auto first = request.wanted.begin() + static_cast<std::ptrdiff_t>(page * per_page);
    const auto last = first + static_cast<std::ptrdiff_t>(std::min(per_page, rows - page * per_page));
    const auto kept = static_cast<std::uint32_t>(std::count(first, last, true));
    if (kept == 0) continue;
    const auto number = request.first_page + static_cast<std::uint32_t>(page);
    reads.push_back({request.list, number, nullptr, kept * request.row_bytes});
    flags.insert(flags.end(), first, last);
    flags.resize((reads.size() - before) * per_page);
  }
  counters_.pages += reads.size() - before;
  counters_.pages_left += touched - (reads.size() - before);
  return flags;
}

std::vector<std::uint8_t> RowFilter::filter(const Request& request, const std::vector<bool>& flags,
                                            std::span<const std::uint8_t> pages) {
  std::vector<std::uint8_t> rows;
  if (!flags.empty()) {
    const std::uint32_t parts = (request.row_bytes + abi::kMaxRowBytes - 1) / abi::kMaxRowBytes;
    auto filtered = engine_.page_filter(pages, spread(flags, parts), static_cast<std::uint32_t>(flags.size()) * parts,
                                        request.row_bytes / parts, abi::kPageBytes);
    if (filtered.status != 0) throw std::runtime_error("the page filter refused its pages");
    counters_.rows_kept += filtered.rows_kept / parts;
    counters_.rows_dropped += (filtered.rows_seen - filtered.rows_kept) / parts;
    counters_.bytes_kept += filtered.rows.size();
    rows = std::move(filtered.rows);
  }
  const auto* const behind = reinterpret_cast<const std::uint8_t*>(request.behind.data());
  rows.insert(rows.end(), behind, behind + request.behind.size());
  return rows;
}

}  // namespace kvdrive
