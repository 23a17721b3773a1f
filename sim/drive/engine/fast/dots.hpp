// SPDX-License-Identifier: Apache-2.0
// Dot products of a block of tokens, rounded as docs/arithmetic.md defines: to a score, or to binary32.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/abi.hpp"
#include "engine/fast/aligned.hpp"
#include "engine/fast/exact.hpp"
#include "engine/fast/integer_query.hpp"
#include "engine/fast/kernels.hpp"
#include "engine/fast/rounding.hpp"
#include "engine/fast/statistics.hpp"

namespace kvdrive::fast {

// How rows hold the numbers of K: divided by the power of two `factor`. All numbers are multiples of `unit`, a power of
// two; for binary16 the smallest subnormal number.
struct RowScale {
  double factor = 1;
  double unit = 0x1p-24;
};

// Block `number` of K in block-column form: beat i holds number i of 32 tokens. The block after the next is prefetched.
class BlockColumns {
 public:
  BlockColumns(const std::uint16_t* k, unsigned r, std::size_t number, std::size_t blocks) {
    constexpr std::size_t kAhead = kBlockTokens / abi::kLanes;
    const std::size_t later = std::min(number + kAhead, blocks - 1);
    for (unsigned i = 0; i < r; ++i) {
      beats_[i] = k + (number * r + i) * abi::kLanes;
      ahead_[i] = k + (later * r + i) * abi::kLanes;
    }
  }
  RowsOfBlock beats() const { return {beats_, ahead_}; }

 private:
  const std::uint16_t* beats_[abi::kMaxHeadDim];
  const std::uint16_t* ahead_[abi::kMaxHeadDim];
};

// The query side of a job: for each of g heads, n numbers (the head dimension, or the number of chosen rows).
struct Query {
  Query(const Kernels& kernels, const std::uint16_t* patterns, unsigned heads, unsigned numbers, RowScale scale = {});

  const std::uint16_t* patterns;  // [g][n]
  unsigned g;
  unsigned n;
  double factor;  // of the rows
  bool finite;
  AlignedDoubles wide;                             // [g][n], times the factor
  double norm[abi::kMaxCommandGroup] = {};         // exact sum of magnitudes per head: at most 49 bits
  double exact_below[abi::kMaxCommandGroup] = {};  // binary64 holds every sum of products up to here
};

// Rounds to Q12.20 scores, with one factor c for each head.
struct ScoreRounding {
  using Output = std::int32_t;
  const float* c;

  Doubt block(const Kernels& kernels, const double* dots, double error, unsigned h, unsigned n, Output* out) const {
    return kernels.to_scores(dots, error, c[h], n, out);
  }
  bool certain(double dot, double error, unsigned h) const {
    return biased_score(dot - error, c[h]) == biased_score(dot + error, c[h]);
  }
  Output round(double dot, unsigned h) const { return unbias_score(biased_score(dot, c[h])); }
};

// Rounds to binary32.
struct SingleRounding {
  using Output = float;

  Doubt block(const Kernels& kernels, const double* dots, double error, unsigned, unsigned n, Output* out) const {
    return kernels.to_singles(dots, error, n, out);
  }
  bool certain(double dot, double error, unsigned) const {
    return static_cast<float>(dot - error) == static_cast<float>(dot + error);
  }
  Output round(double dot, unsigned) const { return static_cast<float>(dot) + 0.0f; }
};

template <typename Rounding>
class Dots {
 public:
  using Output = typename Rounding::Output;

  Dots(const Kernels& kernels, const Query& query, Rounding rounding, Statistics& statistics)
      : kernels_(kernels), query_(query), rounding_(rounding), statistics_(statistics) {}

  // Computes out[h * stride + t] for the token rows 0 to n - 1, n <= kBlockTokens. Returns a bit for each token with an
  // Inf or NaN.
  std::uint64_t rows(RowsOfBlock from, unsigned n, Output* out, std::size_t stride) const {
    std::uint64_t non_finite = 0;
    each_tile(query_.g, [&](unsigned first, unsigned heads) {
      alignas(abi::kBeatBytes) double dots[kTileHeads * kBlockTokens];
      const double largest = kernels_.dots(query_.wide + std::size_t{first} * query_.n, heads, query_.n, from, n, dots);
      const Block block{n, kBlockTokens, query_.n / kernels_.lanes + 3, largest};
      non_finite |= round(dots, block, Heads{first, heads}, out, stride,
                          [&](unsigned t) { return Token{from.rows + t, 1, query_.n, from.rows[t], 1}; });
    });
    return non_finite;
  }

  // The same for rows in 8 or 4 bits and the same queries as integers. `decoded(t)` returns the binary16 numbers of row
  // t, which are valid until its next call.
  template <typename Decoded>
  std::uint64_t codes(const IntegerQuery& query, KeyCodes& keys, unsigned n, Decoded decoded, Output* out,
                      std::size_t stride) const {
    const Block block{n, kBlockTokens, query.parts(), keys.largest, ~std::uint64_t{0}, {&query, keys.unit}};
    std::uint64_t non_finite = 0;
    each_tile(query_.g, [&](unsigned first, unsigned heads) {
      alignas(abi::kBeatBytes) double dots[kTileHeads * kBlockTokens];
      kernels_.code_dots(query.view(), first, heads, keys, n, dots);
      const std::uint16_t* halves = nullptr;
      non_finite |= round(dots, block, Heads{first, heads}, out, stride, [&](unsigned t) {
        halves = decoded(t);
        return Token{&halves, 1, query_.n, halves, 1};
      });
    });
    return non_finite;
  }

  // The same for one block in block-column form: row i holds number i of 32 tokens. Results of tokens outside `wanted`
  // are undefined.
  std::uint64_t columns(RowsOfBlock beats, std::uint64_t wanted, unsigned n, Output* out, std::size_t stride) const {
    std::uint64_t non_finite = 0;
    each_tile(query_.g, [&](unsigned first, unsigned heads) {
      alignas(abi::kBeatBytes) double dots[kTileHeads * abi::kLanes] = {};
      const double largest = kernels_.add_weighted_sums(query_.wide + std::size_t{first} * query_.n, query_.n, heads,
                                                        beats, query_.n, abi::kLanes, dots);
      const Block block{n, abi::kLanes, query_.n, largest, wanted};
      non_finite |= round(dots, block, Heads{first, heads}, out, stride, [&](unsigned t) {
        return Token{beats.rows, query_.n, abi::kLanes, beats.rows[0] + t, abi::kLanes};
      });
    });
    return non_finite;
  }

 private:
  // Gives access to one token's numbers: a few rows that hold them, whose largest magnitude bounds them, and the exact
  // values.
  struct Token {
    HalfRows rows;
    unsigned n_rows;
    unsigned row_numbers;
    const std::uint16_t* first;
    std::size_t stride;
  };

  // Set for rows in 8 or 4 bits: the queries as integers, and a power of two that divides all steps of the block.
  struct Codes {
    const IntegerQuery* query = nullptr;
    double unit = 0;
  };

  // Tokens whose dot products were summed in `steps` additions. The largest |k| of the terms is `largest`.
  struct Block {
    unsigned n;
    unsigned stride;  // dot products from one head to the next
    unsigned steps;
    double largest;
    std::uint64_t wanted = ~std::uint64_t{0};
    Codes codes{};
  };
  // A range of query heads.
  struct Heads {
    unsigned first;
    unsigned count;
  };

  template <typename Locate>
  std::uint64_t round(const double* dots, const Block& block, Heads heads, Output* out, std::size_t stride,
                      Locate locate) const {
    std::uint64_t non_finite = 0;
    for (unsigned h = heads.first; h < heads.first + heads.count; ++h) {
      const double* head = dots + (h - heads.first) * block.stride;
      const double unit = relative_error(block, h);
      const Doubt doubt = rounding_.block(kernels_, head, unit * block.largest, h, block.n, out + h * stride);
      non_finite |= doubt.non_finite & block.wanted;
      for (std::uint64_t left = doubt.uncertain & block.wanted & ~doubt.non_finite; left != 0; left &= left - 1) {
        const auto t = static_cast<unsigned>(std::countr_zero(left));
        out[h * stride + t] = resolve(head[t], unit, h, locate(t));
      }
    }
    return non_finite;
  }

  // The error of a sum of head h if |k| <= 1. Sums over codes are often exact. The query's weights are multiples of its
  // units, and the numbers of the block are multiples of its unit. So each product is a multiple of u = query.unit(h) *
  // codes.unit, and so is each partial sum. Its magnitude is at most the sum of |q_i * k_i|, which is at most norm *
  // largest. Binary64 holds every multiple of u up to 2^53 * u; half of that leaves room for the rounding of the bound.
  // Sums of few bits often lie in the middle between two results: with an error above 0, integers would have to decide.
  double relative_error(const Block& block, unsigned h) const {
    const double rounded = (block.steps + 4) * kUlp * query_.norm[h];
    if (block.codes.query == nullptr) return query_.norm[h] * block.largest < query_.exact_below[h] ? 0 : rounded;
    const IntegerQuery& query = *block.codes.query;
    const bool exact = query_.norm[h] * block.largest < 0x1p52 * query.unit(h) * block.codes.unit;
    return (exact ? 0 : rounded) + query.rest(h);
  }

  // Tries again with the magnitudes of the token instead of its whole block; if that leaves doubt, computes exactly.
  Output resolve(double dot, double unit, unsigned h, const Token& token) const {
    statistics_.dots_doubted.fetch_add(1, std::memory_order_relaxed);
    const double error = unit * kernels_.largest(token.rows, token.n_rows, token.row_numbers);
    if (rounding_.certain(dot, error, h)) return rounding_.round(dot, h);
    statistics_.dots_exact.fetch_add(1, std::memory_order_relaxed);
    const std::uint16_t* const q = query_.patterns + std::size_t{h} * query_.n;
    return rounding_.round(sticky_dot(q, token.first, token.stride, query_.n) * query_.factor, h);
  }

  const Kernels& kernels_;
  const Query& query_;
  Rounding rounding_;
  Statistics& statistics_;
};

}  // namespace kvdrive::fast
