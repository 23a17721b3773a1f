// SPDX-License-Identifier: Apache-2.0
// The inner loops of the fast engine, compiled once per instruction set and chosen at run time.
//
// Products of two binary16 numbers (22 bits), or of a probability and one (43 bits), are exact in binary64, so every
// sum here has one kind of error: the rounding of additions. A sum of n products that are at most A in total
// magnitude is off by at most (n - 1) * 2^-53 * A / (1 - n * 2^-53), in any order. The callers turn that into an
// interval and ask whether both of its ends round to the same result; where they do not, exact integers decide
// (exact.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvdrive::fast {

constexpr unsigned kBlockTokens = 64;  // tokens whose rows stay in the first-level cache while all heads use them
constexpr unsigned kTileHeads = 8;     // query heads whose sums fit into the registers together
constexpr double kUlp = 0x1p-53;       // largest relative error of one addition

using HalfRows = const std::uint16_t* const*;  // binary16 rows, one pointer each

// What rounding both ends of the interval told about the numbers of one block.
struct Doubt {
  std::uint64_t uncertain = 0;   // bit i: number i may round either way
  std::uint64_t non_finite = 0;  // bit i: an Inf or NaN went into number i
};

struct Kernels {
  const char* name;
  unsigned lanes;  // binary64 numbers per register: the depth of a dot product is d / lanes + log2(lanes)

  // out[i] = h[i] as binary64; Inf and NaN become numbers that are not finite.
  void (*widen)(const std::uint16_t* h, unsigned n, double* out);

  // dots[h * kBlockTokens + t] = sum_i q[h * d + i] * rows[t][i] for t < n <= kBlockTokens; room for kBlockTokens.
  // 1 <= g <= kTileHeads, d a multiple of 8.
  void (*dots)(const double* q, unsigned g, unsigned d, HalfRows rows, unsigned n, double* dots);

  // sums[h * columns + j] = sum_t w[h * stride + t] * rows[t][j] for t < n <= 256, columns a multiple of 8.
  // 1 <= g <= kTileHeads.
  void (*weighted_sums)(const double* w, std::size_t stride, unsigned g, HalfRows rows, unsigned n, unsigned columns,
                        double* sums);

  // Largest magnitude in n rows of d, a multiple of 8; only a bound where a row holds an Inf or NaN.
  double (*largest)(HalfRows rows, unsigned n, unsigned d);

  // Rounds dots that are off by at most `error` to scores, or to binary32. n <= kBlockTokens.
  Doubt (*to_scores)(const double* dots, double error, float c, unsigned n, std::int32_t* x);
  Doubt (*to_singles)(const double* dots, double error, unsigned n, float* out);

  // high += terms, and low += what those additions rounded away.
  void (*add_twofold)(const double* terms, std::size_t n, double* high, double* low);

  std::int32_t (*max_score)(const std::int32_t* x, std::size_t n);

  // p of docs/arithmetic.md for scores x under the maximum `max`; returns their sum. p may be x. n <= kBlockTokens.
  std::uint64_t (*probabilities)(const std::int32_t* x, unsigned n, std::int32_t max, std::uint32_t* p);

  // w[i] = p[i]
  void (*to_weights)(const std::uint32_t* p, unsigned n, double* w);

  // high[j] * 2^20 + low[j] += p * fixed(row[j]): at most 2^11 calls before a word may overflow. n columns.
  void (*add_exact)(std::uint32_t p, const std::uint16_t* row, unsigned n, std::int64_t* high, std::int64_t* low);

  // Rounds (high + low) / z, whose numerator is off by at most `error`, to binary16 or binary32 patterns. uncertain[j]
  // is 1 where the quotient may round either way.
  void (*ratios_to_half)(const double* high, const double* low, double error, double z, unsigned n, std::uint16_t* out,
                         std::uint8_t* uncertain);
  void (*ratios_to_single)(const double* high, const double* low, double error, double z, unsigned n,
                           std::uint32_t* out, std::uint8_t* uncertain);

  // keys[t] = fl32(sum_h p[h * stride + t] * weight[h])
  void (*token_keys)(const std::uint32_t* p, std::size_t stride, const std::uint64_t* weight, unsigned g, std::size_t n,
                     float* keys);
};

constexpr unsigned kExactRun = 2048;  // calls of add_exact between carries
constexpr int kExactSplit = 20;       // bits of fixed(v) that go into the low word

// Calls work(first head, heads) for the query heads of a job in tiles of about the same size.
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
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();

// The best variant that this machine runs, or the one that KVDRIVE_ISA (scalar, avx2, avx512) names.
// Throws std::invalid_argument for an unknown name and std::runtime_error for one this machine cannot run.
const Kernels& choose_kernels();

}  // namespace kvdrive::fast
