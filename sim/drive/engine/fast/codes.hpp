// SPDX-License-Identifier: Apache-2.0
// Rows in 8 and 4 bits, laid out for integer products.
//
// A product multiplies a *word*, four codes of one byte each, by four integer weights. A register holds words of many
// tokens (K: four neighbouring numbers of a row) or of many columns (V: four neighbouring tokens). All lanes of a
// register share their weights, so no sum crosses lanes.
//
// Weights are split into signed digits of 8 or 16 bits. Sums of products of codes and digits are exact in 32 bits, and
// their combination is exact in binary64.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/abi.hpp"

namespace kvdrive::fast {

constexpr unsigned kBlockTokens = 64;  // tokens whose rows stay in the first-level cache while all heads use them

constexpr unsigned kWordCodes = 4;
constexpr unsigned kPartWords = abi::kFormatPart / kWordCodes;
constexpr unsigned kMostParts = abi::kMaxHeadDim / abi::kFormatPart;
constexpr unsigned kMostInt8 = 127, kMostInt4 = 15;  // largest codes: signed, unsigned

// The largest weights whose digits fit: in four signed bytes (or two halves), and in three.
constexpr std::int32_t kLargestWeight = 0x7f7f7f7f, kLargestShortWeight = 0x7f7f7f;

// Stored rows of a block (formats.hpp), 1 <= n <= kBlockTokens, and as many that are used later.
struct CodedRows {
  const std::byte* const* rows;
  const std::byte* const* ahead;
  unsigned n;
  unsigned d;
  bool four_bits;
};

// Rows that are used later. The loops over a block prefetch them bit by bit into the second-level cache: all at once
// would be more than a processor can await. A prefetch never faults.
class Ahead {
 public:
  // Begins with n rows of `row_bytes`. Each call of prefetch_some() takes `at_once` beats.
  void start(const std::byte* const* rows, unsigned n, unsigned row_bytes, unsigned at_once) {
    at_once_ = at_once;
    runs_ = next_ = 0;
    at_ = end_ = nullptr;
    const std::byte* end = nullptr;
    for (unsigned t = 0; t < n; ++t) {
      if (rows[t] != end) start_[runs_++] = rows[t];
      stop_[runs_ - 1] = end = rows[t] + row_bytes;
      const std::byte* const last = rows[n - 1];
      if (last == rows[t] + std::size_t{n - 1 - t} * row_bytes) {  // the others lie side by side
        stop_[runs_ - 1] = last + row_bytes;
        break;
      }
    }
  }

  void prefetch_some() {
    for (unsigned i = 0; i < at_once_; ++i, at_ += abi::kBeatBytes) {
      if (at_ >= end_) {
        if (next_ == runs_) return;
        at_ = start_[next_];
        end_ = stop_[next_++];
      }
      __builtin_prefetch(at_, 0, 2);
    }
  }

 private:
  unsigned at_once_, runs_, next_;
  const std::byte *at_, *end_;            // of the present run
  const std::byte* start_[kBlockTokens];  // runs of rows that lie side by side
  const std::byte* stop_[kBlockTokens];
};

// A block of K. Number i of token t is (code - offset[j][t]) * step[j][t] in part j = i / 32. words[i / 4][t] holds the
// codes of the numbers i to i + 3.
struct KeyCodes {
  alignas(64) std::uint32_t words[kMostParts * kPartWords][kBlockTokens];
  alignas(64) double step[kMostParts][kBlockTokens];
  alignas(64) double offset[kMostParts][kBlockTokens];
  double largest;  // no number is larger
  double unit;     // a power of two; every step is a multiple of it
  Ahead ahead;
};

// A block of V. Number i of token t is (code - offset[j][t]) * unit[j] * 2^-shift[j][t]. words[t / 4][i] holds the
// codes of the tokens t to t + 3.
struct ValueCodes {
  alignas(64) std::uint32_t words[kBlockTokens / kWordCodes][kMostParts * abi::kFormatPart];
  alignas(64) std::uint32_t shift[kMostParts][kBlockTokens];
  alignas(64) double offset[kMostParts][kBlockTokens];
  double unit[kMostParts];  // a power of two
  double most_code;         // no |code - offset| is larger
  double largest;           // no number is larger
  Ahead ahead;
};

// The queries of a job. In part j of head h, number i is close to weight * unit[h][j].
struct CodeQuery {
  const std::int32_t* digits;    // [h][parts * 32]: of the weights
  const double* unit;            // [h][parts]
  const double* base;            // [h][parts]: -unit * sum of the weights
  const std::uint8_t* is_short;  // [h][parts]: three digits suffice
  unsigned d;
};

// The probabilities of a block of tokens: p[h * stride + t].
struct BlockWeights {
  const std::uint32_t* p;
  std::size_t stride;
  unsigned heads;  // at most kTileHeads
  unsigned n;
};

constexpr unsigned parts_of(unsigned d) { return (d + abi::kFormatPart - 1) / abi::kFormatPart; }

}  // namespace kvdrive::fast
