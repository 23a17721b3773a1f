// SPDX-License-Identifier: Apache-2.0
// K or V of one head: token-indexed groups in whole flash pages, then a tail of less than a page in drive DRAM.
//
// A page holds floor(kPageBytes / row_bytes) consecutive tokens from its first byte on. Changes are prepared first and
// applied afterwards, so that a command over several heads happens to all of them or to none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "page_store.hpp"

namespace kvdrive {

class Stream {
 public:
  // What applying leaves behind: the first `kept_pages` pages, then `added`, then `tail`.
  struct Change {
    std::size_t kept_pages = 0;
    std::vector<Page> added;
    std::vector<std::byte> tail;
    std::uint32_t tokens = 0;
  };

  // `row_bytes` is at most kPageBytes.
  explicit Stream(std::uint32_t row_bytes) : row_bytes_(row_bytes) {}

  std::uint32_t row_bytes() const { return row_bytes_; }
  std::uint32_t tokens() const { return tokens_; }
  std::uint32_t tokens_per_page() const { return abi::kPageBytes / row_bytes_; }
  std::uint32_t tokens_in_pages() const { return static_cast<std::uint32_t>(pages_.size()) * tokens_per_page(); }
  std::uint32_t pages_to_append(std::uint32_t tokens) const;

  // Writes the pages that `rows` fills into `change`. When it throws, `change.added` still names the pages to release.
  void prepare_append(PageStore& store, std::span<const std::byte> rows, Change& change) const;

  // Precondition: `tokens` <= tokens(). False when a page that must be cut is lost.
  [[nodiscard]] bool prepare_truncate(PageStore& store, std::uint32_t tokens, Change& change) const;

  void apply(PageStore& store, Change&& change);

  // Copies the first `tokens` rows to `out`. Precondition: `tokens` <= tokens(). False when a page is lost.
  [[nodiscard]] bool read(PageStore& store, std::uint32_t tokens, std::byte* out) const;

  // Bytes of the first `tokens` rows that come from DRAM instead of pages.
  std::uint64_t tail_bytes(std::uint32_t tokens) const;

 private:
  std::uint32_t row_bytes_;
  std::uint32_t tokens_ = 0;
  std::vector<Page> pages_;
  std::vector<std::byte> tail_;
};

}  // namespace kvdrive
