// SPDX-License-Identifier: Apache-2.0
// The rows of chosen tokens: those in groups are requested from a page source, staged rows are in drive memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "attention/job_memory.hpp"
#include "attention/page_source.hpp"
#include "attention/runs.hpp"
#include "engine/engine.hpp"
#include "formats.hpp"
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

// The request for the rows of `tokens` that are in groups; staged rows are left out. `of`: tokens that could have been
// chosen.
inline RowRequest stored_rows(const HeadRows& rows, const Runs& tokens, std::uint32_t of) {
  const std::uint32_t per_group = rows.tokens_per_group();
  RowRequest request{.list = rows.list(),
                     .pages = (std::min(of, rows.tokens_in_groups()) + per_group - 1) / per_group,
                     .rows_per_page = per_group,
                     .row_bytes = rows.row_bytes()};
  for (const Run& run : tokens) request.rows.add(run.first, std::min(run.end, rows.tokens_in_groups()));
  return request;
}

// Calls use(rows) for the staged rows of these tokens, run by run.
template <typename Use>
void each_staged(const HeadRows& rows, const Runs& tokens, Use use) {
  for (const Run& run : tokens) {
    const std::uint32_t first = std::max(run.first, rows.tokens_in_groups());
    if (first >= run.end) continue;
    const std::size_t at = std::size_t{first - rows.tokens_in_groups()} * rows.row_bytes();
    use(rows.staged().subspan(at, std::size_t{run.end - first} * rows.row_bytes()));
  }
}

// Calls use(rows) for the rows of `tokens`, run by run. The batch's next request is stored_rows() of the same tokens.
template <typename Use>
void each_chosen(RowBatch& arriving, const HeadRows& rows, const Runs& tokens, Use use) {
  arriving.next([&](const Run& run, const std::byte* bytes, bool) {
    use(std::span(bytes, std::size_t{run.count()} * rows.row_bytes()));
  });
  each_staged(rows, tokens, use);
}

// Places the rows of `tokens` one after the other as binary16 numbers. See each_chosen.
inline std::uint64_t place_rows(JobMemory& memory, RowBatch& arriving, const HeadRows& rows, const Runs& tokens) {
  const std::uint64_t address = memory.place(tokens.count() * std::uint64_t{rows.half_bytes()});
  std::byte* to = memory.at(address);
  each_chosen(arriving, rows, tokens, [&](std::span<const std::byte> run) {
    decode_rows(rows.format(), rows.head_dim(), run, reinterpret_cast<std::uint16_t*>(to));
    to += run.size() / rows.row_bytes() * rows.half_bytes();
  });
  return address;
}

// Places the rows of `tokens` one after the other as they are stored. See each_chosen.
inline std::uint64_t place_stored_rows(JobMemory& memory, RowBatch& arriving, const HeadRows& rows,
                                       const Runs& tokens) {
  const std::uint64_t address = memory.place(tokens.count() * std::uint64_t{rows.row_bytes()});
  std::byte* to = memory.at(address);
  each_chosen(arriving, rows, tokens, [&](std::span<const std::byte> run) {
    std::memcpy(to, run.data(), run.size());
    to += run.size();
  });
  return address;
}

// Stored rows in job memory, for an engine that reads pages.
class PlacedRows final : public KvPages {
 public:
  // `k`, `v`: rows of the form of `like`, one after the other.
  PlacedRows(const HeadRows& like, std::uint32_t tokens, const std::byte* k, const std::byte* v)
      : KvPages(kRowsPerPage, like.format()) {
    for (std::uint32_t token = 0; token < tokens; token += kRowsPerPage) {
      pages_[abi::kKeys].push_back(k + std::size_t{token} * like.row_bytes());
      pages_[abi::kValues].push_back(v + std::size_t{token} * like.row_bytes());
    }
  }

  void visit(abi::KvKind kind, const Visit& visit) const override { visit(0, pages_[kind]); }
  // Rows were checked when they were placed.
  void check(abi::KvKind, std::size_t, std::span<const std::byte* const>) const override {}

 private:
  static constexpr std::uint32_t kRowsPerPage = 64;

  std::vector<const std::byte*> pages_[2];
};

// Whole pages of chosen tokens where they are: in the batch, in drive memory, or staged. Only pages of a batch that do
// not stay are copied.
class ChosenPages final : public KvPages {
 public:
  explicit ChosenPages(const HeadRows& like) : KvPages(like.tokens_per_group(), like.format()) {}

  // True if each run of tokens begins and ends with a page; the last one may end within a page.
  static bool fit(const HeadRows& rows, const Runs& tokens) {
    const std::uint32_t per_page = rows.tokens_per_group();
    std::uint32_t end = 0;  // of the run before
    for (const Run& run : tokens) {
      if (end % per_page != 0 || run.first % per_page != 0) return false;
      end = run.end;
    }
    return true;
  }

  // Adds all pages of K or of V. `room`: for the rows of all tokens. See each_chosen. Precondition: they `fit`.
  void add(abi::KvKind kind, RowBatch& arriving, const HeadRows& rows, const Runs& tokens, std::byte* room) {
    arriving.next([&](const Run& run, const std::byte* bytes, bool stays) {
      const std::size_t size = std::size_t{run.count()} * rows.row_bytes();
      if (!stays) bytes = static_cast<const std::byte*>(std::memcpy(room, bytes, size));
      if (!stays) room += size;
      pages_[kind].push_back(bytes);
    });
    const std::size_t page_bytes = std::size_t{rows.tokens_per_group()} * rows.row_bytes();
    each_staged(rows, tokens, [&](std::span<const std::byte> staged) {
      for (std::size_t at = 0; at < staged.size(); at += page_bytes) pages_[kind].push_back(staged.data() + at);
    });
  }

  void visit(abi::KvKind kind, const Visit& visit) const override { visit(0, pages_[kind]); }
  // Pages were checked when they were read.
  void check(abi::KvKind, std::size_t, std::span<const std::byte* const>) const override {}

 private:
  std::vector<const std::byte*> pages_[2];
};

}  // namespace kvdrive
