// SPDX-License-Identifier: Apache-2.0
// Embedding-indexed groups of K: a page holds the same few dimensions (rows) of many consecutive tokens.
//
// Spans of tokens follow one another. Early ones are short with 8 rows a page, so that a short context is indexed soon;
// later ones are long with 2 rows a page, so that choosing rows leaves out more pages. From kTwoBlocksFrom on a span
// has several blocks of tokens, and the pages of the same dimensions lie side by side, so that one read takes them all.
// Tokens behind the last whole span, a quarter of the context at most, are read from token-indexed groups.
#pragma once

#include <cstdint>

#include "common/abi.hpp"

namespace kvdrive {

struct EmbeddingSpan {
  std::uint32_t first_token = 0;
  std::uint32_t first_page = 0;  // number among the head's embedding-indexed groups
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
  constexpr std::uint32_t row_bytes() const { return abi::kPageBytes / rows_per_page; }  // of a row within a block
  // The first dimension, and the first token, that page `page` of the span holds.
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

// Pages of all spans that lie wholly within the first `tokens`.
constexpr std::uint32_t embedding_pages(std::uint32_t head_dim, std::uint32_t tokens) {
  EmbeddingSpan span = EmbeddingSpan::first(head_dim);
  while (span.end() <= tokens) span = span.next();
  return span.first_page;
}

}  // namespace kvdrive
