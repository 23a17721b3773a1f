// SPDX-License-Identifier: Apache-2.0
// The inner loops of the fast engine, compiled once per instruction set and chosen at run time.
//
// Products of two binary16 numbers (22 bits), or of a probability and a binary16 number (43 bits), are exact in
// binary64. So the sums here have only one kind of error: the rounding of additions. A sum of n products with a total
// magnitude of at most A is off by at most (n - 1) * 2^-53 * A / (1 - n * 2^-53), in any order. Callers turn this bound
// into an interval and test if both of its ends round to the same result. If they do not, exact integers decide
// (exact.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/abi.hpp"
#include "engine/fast/codes.hpp"

namespace kvdrive::fast {

constexpr unsigned kTileHeads = 8;  // query heads whose sums fit into the registers together
constexpr double kUlp = 0x1p-53;    // largest relative error of one addition

using HalfRows = const std::uint16_t* const*;  // binary16 rows, one pointer each

// The rows of a block, and for each of them a row that is used later, which is prefetched meanwhile.
struct RowsOfBlock {
  HalfRows rows;
  HalfRows ahead;
};

constexpr unsigned kChains = 12;  // sums that multiply_adds has in the registers: enough for its latency

constexpr unsigned kSpanTokens = abi::kSpanTokens;

constexpr unsigned kSpanWordCodes = 16;  // 2-bit codes of a token in a 32-bit word

// The words of a token's codes; the last one may be half full.
constexpr unsigned span_words(unsigned d) { return (d + kSpanWordCodes - 1) / kSpanWordCodes; }

// The position in SpanQuery::paired of number i of a head: the numbers whose codes have the same place in the two
// halves of a word lie side by side.
constexpr unsigned paired_position(unsigned i) {
  constexpr unsigned kHalf = kSpanWordCodes / 2;
  return i / kSpanWordCodes * kSpanWordCodes + i % kHalf * 2 + i / kHalf % 2;
}

// The queries of span_sums, -127 to 127. Positions of `paired` that belong to no number are 0.
struct SpanQuery {
  const std::int16_t* natural;  // [g][d]
  const std::int16_t* paired;   // [g][span_words(d) * kSpanWordCodes]
  unsigned g;
  unsigned d;
};

// The outcome of rounding both ends of the interval for the numbers of one block.
struct Doubt {
  std::uint64_t uncertain = 0;   // bit i: the interval does not decide number i
  std::uint64_t non_finite = 0;  // bit i: number i was computed from an Inf or NaN
};

struct Kernels {
  const char* name;
  unsigned lanes;  // binary64 numbers per register: the depth of a dot product is d / lanes + log2(lanes)

  // out[i] = h[i] as binary64; Inf and NaN become non-finite numbers.
  void (*widen)(const std::uint16_t* h, unsigned n, double* out);

  // out[i] = number i of a stored row of d numbers (formats.hpp), as binary16. d is a multiple of 8.
  void (*decode_int8)(const std::byte* row, unsigned d, std::uint16_t* out);
  void (*decode_int4)(const std::byte* row, unsigned d, std::uint16_t* out);

  // out[t * d + i] = number i of row t in e4m3, divided by kE4m3Scale, as binary16, for t < n <= kBlockTokens.
  // Prefetches ahead[t] meanwhile.
  void (*expand_e4m3)(const std::byte* const* rows, const std::byte* const* ahead, unsigned n, unsigned d,
                      std::uint16_t* out);

  // dots[h * kBlockTokens + t] = sum_i q[h * d + i] * rows[t][i] for t < n <= kBlockTokens. `dots` has room for whole
  // blocks. 1 <= g <= kTileHeads, d is a multiple of 8. Returns `largest(rows, n, d)`.
  double (*dots)(const double* q, unsigned g, unsigned d, RowsOfBlock block, unsigned n, double* dots);

  // sums[h * columns + j] += sum_t w[h * stride + t] * rows[t][j] for t < n <= 256, columns a multiple of 8: a sum of n
  // products, then one addition. 1 <= g <= kTileHeads. Returns `largest(rows, n, columns)`.
  double (*add_weighted_sums)(const double* w, std::size_t stride, unsigned g, RowsOfBlock block, unsigned n,
                              unsigned columns, double* sums);

  // Rows in 8 or 4 bits. Lays out a block of K or of V for integer products (codes.hpp).
  void (*pack_keys)(const CodedRows& rows, KeyCodes& keys);
  void (*pack_values)(const CodedRows& rows, ValueCodes& values);
  unsigned digit_bits;  // 8: three digits are faster than four
  // Splits n weights into digits. n is a multiple of 16.
  void (*to_digits)(const std::int32_t* weights, unsigned n, std::int32_t* digits);
  // Like `dots`, for the heads [first, first + heads). Each part of the head dimension costs one rounding.
  void (*code_dots)(const CodeQuery& query, unsigned first, unsigned heads, KeyCodes& keys, unsigned n, double* dots);
  // sums[h * d + j] += sum_t p[h][t] * number j of token t, with at most two roundings of a sum. error[h] grows by a
  // bound on what is left out. That is more than enough[h] only if it is below 2^-60 of the block's sum of magnitudes.
  void (*add_code_sums)(const BlockWeights& block, ValueCodes& values, unsigned d, const double* enough, double* sums,
                        double* error);

  // The largest magnitude in n rows of d numbers, d a multiple of 8. Only an upper bound if a row holds an Inf or NaN.
  double (*largest)(HalfRows rows, unsigned n, unsigned d);

  // Rounds dot products with an error of at most `error` to scores, or to binary32. n <= kBlockTokens.
  Doubt (*to_scores)(const double* dots, double error, float c, unsigned n, std::int32_t* x);
  Doubt (*to_singles)(const double* dots, double error, unsigned n, float* out);

  // Adds the terms to `high`, and the rounding errors of these additions to `low`.
  void (*add_twofold)(const double* terms, std::size_t n, double* high, double* low);

  // sums[h * kSpanTokens + t] = sum_i q[h][i] * (4 * lo_i + step_i * code_ti) for the 32 tokens of a span of the 2-bit
  // index: lo [d] int8, step [d] uint8, codes [32][d / 4]. g <= kTileHeads.
  void (*span_sums)(const SpanQuery& query, const std::uint8_t* span, std::int32_t* sums);

  // x[i] = the score of a dot product of sums[i] * lsb. n <= kBlockTokens.
  void (*sums_to_scores)(const std::int32_t* sums, float lsb, float c, unsigned n, std::int32_t* x);

  std::int32_t (*max_score)(const std::int32_t* x, std::size_t n);

  // Computes p of docs/arithmetic.md for scores x under the maximum `max`, and returns the sum. p may equal x. n <=
  // kBlockTokens.
  std::uint64_t (*probabilities)(const std::int32_t* x, unsigned n, std::int32_t max, std::uint32_t* p);

  // w[i] = p[i]
  void (*to_weights)(const std::uint32_t* p, unsigned n, double* w);

  // high[j] * 2^20 + low[j] += p * fixed(row[j]) for n columns. A word may overflow after 2^11 calls.
  void (*add_exact)(std::uint32_t p, const std::uint16_t* row, unsigned n, std::int64_t* high, std::int64_t* low);

  // Rounds (high + low) / z to binary16 or binary32 patterns. The numerator has an error of at most `error`.
  // uncertain[j] is 1 if the error leaves the rounding of quotient j undecided.
  void (*ratios_to_half)(const double* high, const double* low, double error, double z, unsigned n, std::uint16_t* out,
                         std::uint8_t* uncertain);
  void (*ratios_to_single)(const double* high, const double* low, double error, double z, unsigned n,
                           std::uint32_t* out, std::uint8_t* uncertain);

  // Multiply-adds that wait for nothing but the arithmetic units, kChains * lanes in each turn. Each adds 1; returns
  // the sum. A benchmark's bound on `dots` and `add_weighted_sums`.
  double (*multiply_adds)(std::size_t turns);

  // keys[t] = fl32(sum_h p[h * stride + t] * weight[h])
  void (*token_keys)(const std::uint32_t* p, std::size_t stride, const std::uint64_t* weight, unsigned g, std::size_t n,
                     float* keys);
};

constexpr unsigned kExactRun = 2048;  // calls of add_exact between carries
constexpr int kExactSplit = 20;       // bits of fixed(v) in the low word

// Calls work(first head, heads) for the query heads of a job, in tiles of nearly equal size.
template <typename Work>
void each_tile(unsigned g, Work work) {
  unsigned first = 0;
  for (unsigned tiles = (g + kTileHeads - 1) / kTileHeads; tiles > 0; --tiles) {
    const unsigned heads = (g - first + tiles - 1) / tiles;
    work(first, heads);
    first += heads;
  }
}

const Kernels& scalar_kernels();
#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512_vnni_kernels();
#elif defined(__aarch64__)
const Kernels& neon_kernels();
#endif

// Returns the best variant for this machine, or the one that KVDRIVE_ISA (scalar, avx2, avx512, avx512_vnni, neon)
// names. Throws std::invalid_argument for an unknown name, and std::runtime_error for a variant that this machine
// cannot run.
const Kernels& choose_kernels();

}  // namespace kvdrive::fast
