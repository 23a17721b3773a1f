// SPDX-License-Identifier: Apache-2.0
// Embedding-indexed groups of K: a page holds the same few dimensions (rows) for many consecutive tokens.
//
// The tokens are divided into consecutive spans. Early spans are short with 8 rows a page, so that a short context is
// indexed soon. Later spans are long with 2 rows a page, so that a choice of rows can skip more pages. From
// kTwoBlocksFrom on a span has several blocks of tokens. The pages with the same dimensions lie next to each other, so
// that one read takes them all. Tokens behind the last whole span, at most a quarter of the context, are read from
// token-indexed groups.
#pragma once

#include <cstdint>

#include "common/abi.hpp"

namespace kvdrive {

struct EmbeddingSpan {
  std::uint32_t first_token = 0;
  std::uint32_t first_page = 0;  // index among the head's embedding-indexed groups
  std::uint32_t rows_per_page = 8;
  std::uint32_t blocks = 1;
  std::uint32_t head_dim = 0;

  static constexpr std::uint32_t kFourRowsFrom = 1024;
  static constexpr std::uint32_t kTwoRowsFrom = 4096;
  static constexpr std::uint32_t kTwoBlocksFrom = 8192;  // first token; four blocks from 16384 on, then eight
  static constexpr std::uint32_t kMostBlocks = 8;

  static constexpr EmbeddingSpan first(std::uint32_t head_dim) { return {.head_dim = head_dim}; }

  constexpr std::uint32_t block_tokens() const { return abi::kPageBytes / 2 / rows_per_page; }
  constexpr std::uint32_t tokens() const { return block_tokens() * blocks; }
  constexpr std::uint32_t end() const { return first_token + tokens(); }
  constexpr std::uint32_t pages() const { return head_dim / rows_per_page * blocks; }
  constexpr std::uint32_t row_bytes() const { return abi::kPageBytes / rows_per_page; }  // bytes of a row
  // The first dimension, and the first token, on page `page` of the span.
  constexpr std::uint32_t first_row(std::uint32_t page) const { return page / blocks * rows_per_page; }
  constexpr std::uint32_t first_token_of(std::uint32_t page) const {
    return first_token + page % blocks * block_tokens();
  }

  constexpr EmbeddingSpan next() const {
    const std::uint32_t token = end();
    const std::uint32_t rows = token < kFourRowsFrom ? 8 : token < kTwoRowsFrom ? 4 : 2;
    std::uint32_t blocks = 1;
    while (rows == 2 && blocks < kMostBlocks && token >= blocks * kTwoBlocksFrom) blocks *= 2;
    return {token, first_page + pages(), rows, blocks, head_dim};
  }
};

// The number of pages of all spans that lie completely within the first `tokens` tokens.
constexpr std::uint32_t embedding_pages(std::uint32_t head_dim, std::uint32_t tokens) {
  EmbeddingSpan span = EmbeddingSpan::first(head_dim);
  while (span.end() <= tokens) span = span.next();
  return span.first_page;
}

}  // namespace kvdrive
