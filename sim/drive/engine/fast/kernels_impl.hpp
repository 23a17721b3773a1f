// SPDX-License-Identifier: Apache-2.0
// The loops behind kernels.hpp, written once. The source for an instruction set defines `Simd` (a register of binary64
// numbers) in the anonymous namespace of kvdrive::fast and includes this file. Nothing here may call an inline function
// of the standard library: the linker could keep the copy that only a newer processor runs.
// A library of vectors (Highway) would be one more package on each machine, in place of about 100 lines for each
// instruction set.
#include "common/abi.hpp"
#include "engine/fast/codes_impl.hpp"
#include "engine/fast/kernels.hpp"
#include "engine/fast/rounding.hpp"

namespace kvdrive::fast {
namespace {

// Prefetches a beat into the second-level cache, because the first level is full of the current block. A prefetch never
// faults.
void prefetch(const void* beat) { __builtin_prefetch(beat, 0, 2); }

constexpr unsigned kSmallBytes = 16, kLargeBytes = sizeof(Vector) < kSmallBytes ? kSmallBytes : sizeof(Vector);

typedef std::uint16_t SmallHalves __attribute__((vector_size(kSmallBytes)));
typedef std::uint16_t LargeHalves __attribute__((vector_size(kLargeBytes)));

// The largest magnitude among binary16 numbers, as patterns times two: that shifts the sign out.
template <typename Halves>
struct Largest {
  static constexpr unsigned kNumbers = sizeof(Halves) / sizeof(std::uint16_t);
  Halves twice = {};

  void see(const std::uint16_t* numbers) {
    Halves some;
    __builtin_memcpy(&some, numbers, sizeof(some));
    some += some;
    twice = twice < some ? some : twice;
  }
  void see_beat(const std::uint16_t* beat) {
#pragma GCC unroll 4
    for (unsigned i = 0; i < abi::kLanes; i += kNumbers) see(beat + i);
  }
  // Columns [first, last) of n rows; a whole number of registers.
  void see_columns(HalfRows rows, unsigned n, unsigned first, unsigned last) {
    for (unsigned i = first; i < last; i += kNumbers) {
#pragma GCC unroll 4
      for (unsigned t = 0; t < n; ++t) see(rows[t] + i);
    }
  }
  std::uint16_t pattern() const {
    std::uint16_t most = 0;
    for (unsigned j = 0; j < kNumbers; ++j) most = most < twice[j] ? twice[j] : most;
    return most / 2;
  }
};

using LargestHere = Largest<LargeHalves>;

// The largest magnitude of all numbers of n rows, if `whole` has seen their first columns up to the last whole beat.
double largest_of(const LargestHere& whole, HalfRows rows, unsigned n, unsigned d) {
  std::uint16_t pattern = whole.pattern();
  if (d % abi::kLanes != 0) {
    Largest<SmallHalves> rest;
    rest.see_columns(rows, n, d / abi::kLanes * abi::kLanes, d);
    pattern = pattern < rest.pattern() ? rest.pattern() : pattern;
  }
  // Multiplying by 2^112 changes the exponent bias from binary16 to binary32, also for subnormals.
  return static_cast<double>(__builtin_bit_cast(float, std::uint32_t{pattern} << 13)) * 0x1p112;
}

double largest(HalfRows rows, unsigned n, unsigned d) {
  LargestHere whole;
  whole.see_columns(rows, n, 0, d / abi::kLanes * abi::kLanes);
  return largest_of(whole, rows, n, d);
}

constexpr unsigned kPart = abi::kFormatPart;

// Calls work() with the constant G = g, the number of query heads of a tile.
template <typename Work>
void with_heads(unsigned g, Work work) {
  static_assert(kTileHeads == 8);
  switch (g) {
    case 1:
      return work.template operator()<1>();
    case 2:
      return work.template operator()<2>();
    case 3:
      return work.template operator()<3>();
    case 4:
      return work.template operator()<4>();
    case 5:
      return work.template operator()<5>();
    case 6:
      return work.template operator()<6>();
    case 7:
      return work.template operator()<7>();
    default:
      return work.template operator()<8>();
  }
}

// g query heads share each converted row. R rows by G heads of accumulators fill the register file.
template <unsigned G, unsigned R>
void dot_tile(const double* q, unsigned d, HalfRows rows, HalfRows ahead, double* dots, LargestHere& largest) {
  Vector sum[G][R];
#pragma GCC unroll 8
  for (unsigned h = 0; h < G; ++h) {
#pragma GCC unroll 8
    for (unsigned r = 0; r < R; ++r) sum[h][r] = Simd::zero();
  }
  LargestHere most = largest;
  for (unsigned i = 0; i < d; i += kLanes) {
    if (i % abi::kLanes == 0) {
#pragma GCC unroll 8
      for (unsigned r = 0; r < R; ++r) {
        prefetch(ahead[r] + i);
        if (i + abi::kLanes <= d) most.see_beat(rows[r] + i);
      }
    }
    Vector row[R];
#pragma GCC unroll 8
    for (unsigned r = 0; r < R; ++r) row[r] = Simd::widen(rows[r] + i);
#pragma GCC unroll 8
    for (unsigned h = 0; h < G; ++h) {
      const Vector weight = Simd::load(q + h * d + i);
#pragma GCC unroll 8
      for (unsigned r = 0; r < R; ++r) sum[h][r] = Simd::multiply_add(row[r], weight, sum[h][r]);
    }
  }
#pragma GCC unroll 8
  for (unsigned h = 0; h < G; ++h) Simd::template reduce<R>(sum[h], dots + h * kBlockTokens);
  largest = most;
}

template <unsigned G>
void dots_of(const double* q, unsigned d, RowsOfBlock block, unsigned n, double* dots, LargestHere& largest) {
  constexpr unsigned kRows = Simd::dot_rows(G);
  unsigned t = 0;
  for (; t + kRows <= n; t += kRows) {
    dot_tile<G, kRows>(q, d, block.rows + t, block.ahead + t, dots + t, largest);
  }
  for (; t < n; ++t) dot_tile<G, 1>(q, d, block.rows + t, block.ahead + t, dots + t, largest);
}

double dots(const double* q, unsigned g, unsigned d, RowsOfBlock block, unsigned n, double* out) {
  LargestHere largest;
  with_heads(g, [&]<unsigned G>() { dots_of<G>(q, d, block, n, out, largest); });
  return largest_of(largest, block.rows, n, d);
}

// Computes W registers of columns for G heads.
template <unsigned G, unsigned W>
void sum_tile(const double* w, std::size_t stride, RowsOfBlock block, unsigned n, unsigned column, unsigned columns,
              double* sums, LargestHere& largest) {
  Vector sum[G][W];
#pragma GCC unroll 16
  for (unsigned h = 0; h < G; ++h) {
#pragma GCC unroll 16
    for (unsigned i = 0; i < W; ++i) sum[h][i] = Simd::zero();
  }
  LargestHere most = largest;
  for (unsigned t = 0; t < n; ++t) {
#pragma GCC unroll 4
    for (unsigned i = 0; i < W * kLanes; i += abi::kLanes) {
      prefetch(block.ahead[t] + column + i);
      if constexpr (W * kLanes % abi::kLanes == 0) most.see_beat(block.rows[t] + column + i);
    }
#pragma GCC unroll 16
    for (unsigned i = 0; i < W; ++i) {
      const Vector value = Simd::widen(block.rows[t] + column + i * kLanes);
#pragma GCC unroll 16
      for (unsigned h = 0; h < G; ++h) {
        sum[h][i] = Simd::multiply_add(value, Simd::broadcast(w[h * stride + t]), sum[h][i]);
      }
    }
  }
#pragma GCC unroll 16
  for (unsigned h = 0; h < G; ++h) {
#pragma GCC unroll 16
    for (unsigned i = 0; i < W; ++i) {
      double* const to = sums + h * columns + column + i * kLanes;
      Simd::store(to, Simd::multiply_add(sum[h][i], Simd::broadcast(1), Simd::load(to)));
    }
  }
  largest = most;
}

template <unsigned G>
void weighted_sums_of(const double* w, std::size_t stride, RowsOfBlock block, unsigned n, unsigned columns,
                      double* sums, LargestHere& largest) {
  constexpr unsigned kWide = Simd::sum_registers(G);
  constexpr unsigned kNarrow = kWide * kLanes < 32 ? kWide : 32 / kLanes;
  if constexpr (kWide * kLanes % abi::kLanes != 0) {
    largest.see_columns(block.rows, n, 0, columns / abi::kLanes * abi::kLanes);
  }
  unsigned column = 0;
  for (; column + kWide * kLanes <= columns; column += kWide * kLanes) {
    sum_tile<G, kWide>(w, stride, block, n, column, columns, sums, largest);
  }
  for (; column + kNarrow * kLanes <= columns; column += kNarrow * kLanes) {
    sum_tile<G, kNarrow>(w, stride, block, n, column, columns, sums, largest);
  }
  constexpr unsigned kLast = kNarrow * kLanes < 8 ? kNarrow : 8 / kLanes;
  for (; column < columns; column += kLast * kLanes) {
    sum_tile<G, kLast>(w, stride, block, n, column, columns, sums, largest);
  }
}

double add_weighted_sums(const double* w, std::size_t stride, unsigned g, RowsOfBlock block, unsigned n,
                         unsigned columns, double* sums) {
  LargestHere largest;
  with_heads(g, [&]<unsigned G>() { weighted_sums_of<G>(w, stride, block, n, columns, sums, largest); });
  return largest_of(largest, block.rows, n, columns);
}

double multiply_adds(std::size_t turns) {
  const Vector row = Simd::broadcast(2), weight = Simd::broadcast(0.5);
  Vector sum[kChains];
  for (Vector& s : sum) s = Simd::zero();
  for (std::size_t turn = 0; turn < turns; ++turn) {
    for (Vector& s : sum) s = Simd::multiply_add(row, weight, s);
  }
  double total[kChains * kLanes], all = 0;
  for (unsigned i = 0; i < kChains; ++i) Simd::store(total + i * kLanes, sum[i]);
  for (const double t : total) all += t;
  return all;
}

void widen(const std::uint16_t* h, unsigned n, double* out) {
  unsigned i = 0;
  for (; i + kLanes <= n; i += kLanes) Simd::store(out + i, Simd::widen(h + i));
  if (i == n) return;
  std::uint16_t rest[kLanes] = {};
  double wide[kLanes];
  __builtin_memcpy(rest, h + i, (n - i) * sizeof(*h));
  Simd::store(wide, Simd::widen(rest));
  __builtin_memcpy(out + i, wide, (n - i) * sizeof(*out));
}

float power_of_two(int exponent) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(exponent + 127) << 23); }

// out[i] = n[i] * step for a part of at most kPart numbers. n has room for a whole part.
void scale_part(const std::int8_t* n, float step, unsigned numbers, std::uint16_t* out) {
  if (numbers == kPart) return Simd::scale_part(n, step, out);
  std::uint16_t whole[kPart];
  Simd::scale_part(n, step, whole);
  __builtin_memcpy(out, whole, numbers * sizeof(*out));
}

void decode_int8(const std::byte* row, unsigned d, std::uint16_t* out) {
  const auto* step = reinterpret_cast<const std::uint8_t*>(row) + d;
  for (unsigned i = 0; i < d; i += kPart, ++step) {
    const unsigned numbers = d - i < kPart ? d - i : kPart;
    std::int8_t codes[kPart] = {};
    __builtin_memcpy(codes, row + i, numbers);
    scale_part(codes, power_of_two(*step - 24), numbers, out + i);
  }
}

void unpack_int4(const std::byte* row, unsigned d, std::int8_t* n) {
  constexpr unsigned kPairs = kPart / 2;
  typedef std::uint8_t Pairs __attribute__((vector_size(kPairs)));
  const auto* part = reinterpret_cast<const std::uint8_t*>(row) + d / 2;
  for (unsigned i = 0; i < d; i += kPart, part += 2) {
    const unsigned half = (d - i < kPart ? d - i : kPart) / 2;
    Pairs pairs = {};
    if (half == kPairs) {
      __builtin_memcpy(&pairs, row + i / 2, kPairs);
    } else {
      __builtin_memcpy(&pairs, row + i / 2, half);
    }
    const Pairs low = (pairs & 15) + part[1], high = (pairs >> 4) + part[1];  // modulo 256, as signed bytes
    if (half == kPairs) {
      __builtin_memcpy(n + i, &low, kPairs);
      __builtin_memcpy(n + i + kPairs, &high, kPairs);
    } else {
      __builtin_memcpy(n + i, &low, half);
      __builtin_memcpy(n + i + half, &high, half);
    }
  }
}

void decode_int4(const std::byte* row, unsigned d, std::uint16_t* out) {
  std::int8_t n[abi::kMaxHeadDim + kPart];
  unpack_int4(row, d, n);
  const auto* part = reinterpret_cast<const std::uint8_t*>(row) + d / 2;
  for (unsigned i = 0; i < d; i += kPart, part += 2) {
    const float step = static_cast<float>(8 + (part[0] & 7)) * power_of_two((part[0] >> 3) - 21);
    scale_part(n + i, step, d - i < kPart ? d - i : kPart, out + i);
  }
}

// A code is extended with its sign, shifted, and loses the second copy of the sign.
void expand_row(const std::byte* __restrict row, unsigned d, std::uint16_t* __restrict out) {
  const auto* codes = reinterpret_cast<const std::int8_t*>(row);
  for (unsigned i = 0; i < d; ++i) out[i] = static_cast<std::uint16_t>(codes[i] * 0x80 & 0xbfff);
}

void expand_e4m3(const std::byte* const* rows, const std::byte* const* ahead, unsigned n, unsigned d,
                 std::uint16_t* out) {
  for (unsigned t = 0; t < n; ++t, out += d) {
    for (unsigned i = 0; i < d; i += abi::kBeatBytes) prefetch(ahead[t] + i);
    expand_row(rows[t], d, out);
  }
}

std::uint32_t bits_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
// 0 for a finite number. The loops combine such words and need one branch for many numbers.
std::uint32_t not_finite(float x) { return bits_of(x - x); }

Doubt to_scores(const double* dots, double error, float c, unsigned n, std::int32_t* x) {
  // If both ends give the same binary32 number, one score is enough. Ties, which are not rare, need the second score.
  float low[kBlockTokens], high[kBlockTokens];
  for (unsigned i = 0; i < n; ++i) {
    low[i] = static_cast<float>(dots[i] - error);
    high[i] = static_cast<float>(dots[i] + error);
  }
  std::uint32_t apart = 0;
  for (unsigned i = 0; i < n; ++i) apart |= (bits_of(low[i]) ^ bits_of(high[i])) | not_finite(low[i]);
  Simd::scores(low, c, n, x);
  Doubt doubt;
  if (apart == 0) return doubt;
  std::int32_t other[kBlockTokens];
  Simd::scores(high, c, n, other);
  for (unsigned i = 0; i < n; ++i) {
    doubt.uncertain |= std::uint64_t{x[i] != other[i]} << i;
    doubt.non_finite |= std::uint64_t{not_finite(low[i]) != 0} << i;
  }
  return doubt;
}

Doubt to_singles(const double* dots, double error, unsigned n, float* out) {
  Doubt doubt;
  for (unsigned i = 0; i < n; ++i) {
    const float low = static_cast<float>(dots[i] - error), high = static_cast<float>(dots[i] + error);
    out[i] = low;
    doubt.uncertain |= std::uint64_t{low != high} << i;
    doubt.non_finite |= std::uint64_t{not_finite(low) != 0} << i;
  }
  return doubt;
}

void add_twofold(const double* terms, std::size_t n, double* high, double* low) {
  for (std::size_t i = 0; i < n; ++i) {
    const double sum = high[i] + terms[i];
    const double part = sum - high[i];
    low[i] += (high[i] - (sum - part)) + (terms[i] - part);  // the exact error of the addition
    high[i] = sum;
  }
}

// A span with a token in each lane, and the weights q * step in the order of SpanQuery::paired.
struct Span {
  static constexpr unsigned kMostWords = abi::kMaxHeadDim / kSpanWordCodes;
  alignas(64) std::uint32_t codes[kMostWords][kSpanTokens];
  alignas(64) std::int16_t weights[kTileHeads][kMostWords * kSpanWordCodes];
  unsigned words;  // of a token
};

using FourWords = std::uint32_t __attribute__((vector_size(16)));

// codes[w][t] = word w of token t, W words at `first` and behind.
template <unsigned W>
void lay_out_words(const std::uint8_t* tokens, unsigned token_bytes, unsigned first, Span& span) {
  static_assert(W == 1 || W == 4);
  if constexpr (W == 1) {
    for (std::size_t t = 0; t < kSpanTokens; ++t) __builtin_memcpy(&span.codes[first][t], tokens + t * token_bytes, 4);
  } else {
    for (std::size_t t = 0; t < kSpanTokens; t += 4) {
      FourWords a, b, c, d;
      __builtin_memcpy(&a, tokens + t * token_bytes, 16);
      __builtin_memcpy(&b, tokens + (t + 1) * token_bytes, 16);
      __builtin_memcpy(&c, tokens + (t + 2) * token_bytes, 16);
      __builtin_memcpy(&d, tokens + (t + 3) * token_bytes, 16);
      const FourWords low_ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                      low_cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
      const FourWords high_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7),
                      high_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
      const FourWords turned[4] = {
          __builtin_shufflevector(low_ab, low_cd, 0, 1, 4, 5), __builtin_shufflevector(low_ab, low_cd, 2, 3, 6, 7),
          __builtin_shufflevector(high_ab, high_cd, 0, 1, 4, 5), __builtin_shufflevector(high_ab, high_cd, 2, 3, 6, 7)};
      for (unsigned w = 0; w < 4; ++w) __builtin_memcpy(&span.codes[first + w][t], &turned[w], 16);
    }
  }
}

void lay_out(const SpanQuery& query, const std::uint8_t* from, Span& span) {
  const unsigned d = query.d, token_bytes = d / 4, whole = d / kSpanWordCodes;
  const std::uint8_t* const tokens = from + 2 * d;
  span.words = span_words(d);
  unsigned w = 0;
  for (; w + 4 <= whole; w += 4) lay_out_words<4>(tokens + 4 * w, token_bytes, w, span);
  for (; w < whole; ++w) lay_out_words<1>(tokens + 4 * w, token_bytes, w, span);
  for (std::size_t t = 0; w < span.words && t < kSpanTokens; ++t) {
    std::uint16_t half;
    __builtin_memcpy(&half, tokens + t * token_bytes + 4 * w, 2);
    span.codes[w][t] = half;
  }
  // Behind the steps of a half word lie codes: their weights are 0.
  using Steps = std::uint8_t __attribute__((vector_size(kSpanWordCodes)));
  using Weights = std::int16_t __attribute__((vector_size(2 * kSpanWordCodes)));
  for (w = 0; w < span.words; ++w) {
    Steps steps;
    __builtin_memcpy(&steps, from + d + w * kSpanWordCodes, sizeof steps);
    const Steps paired = __builtin_shufflevector(steps, steps, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    const Weights wide = __builtin_convertvector(paired, Weights);
    for (unsigned h = 0; h < query.g; ++h) {
      Weights q;
      __builtin_memcpy(&q, query.paired + (std::size_t{h} * span.words + w) * kSpanWordCodes, sizeof q);
      q *= wide;
      __builtin_memcpy(&span.weights[h][w * kSpanWordCodes], &q, sizeof q);
    }
  }
}

// sums[h * kSpanTokens + t] = the sum of the products of token t.
template <unsigned G>
void code_sums(const Span& span, std::int32_t* sums) {
  constexpr unsigned kRegisters = G <= 4 ? 2 : 1;
  for (unsigned t = 0; t < kSpanTokens; t += kRegisters * Simd::kSumLanes) {
    typename Simd::Sums sum[G][kRegisters];
    for (auto& head : sum) {
      for (auto& s : head) s = Simd::no_sums();
    }
    for (unsigned w = 0; w < span.words; ++w) {
      typename Simd::Words words[kRegisters];
      for (unsigned r = 0; r < kRegisters; ++r) words[r] = Simd::load_words(&span.codes[w][t + r * Simd::kSumLanes]);
      for (int place = 0; place < 8; ++place) {
        typename Simd::Words codes[kRegisters];
        for (unsigned r = 0; r < kRegisters; ++r) codes[r] = Simd::codes(words[r], place);
        for (unsigned h = 0; h < G; ++h) {
          const auto weights = Simd::load_pair(&span.weights[h][w * kSpanWordCodes + 2 * static_cast<unsigned>(place)]);
          for (unsigned r = 0; r < kRegisters; ++r) sum[h][r] = Simd::add_products(sum[h][r], codes[r], weights);
        }
      }
    }
    for (unsigned h = 0; h < G; ++h) {
      for (unsigned r = 0; r < kRegisters; ++r) {
        Simd::store_sums(sums + h * kSpanTokens + t + r * Simd::kSumLanes, sum[h][r]);
      }
    }
  }
}

void span_sums(const SpanQuery& query, const std::uint8_t* from, std::int32_t* sums) {
  Span span;
  lay_out(query, from, span);
  with_heads(query.g, [&]<unsigned G>() { code_sums<G>(span, sums); });
  std::int16_t lows[abi::kMaxHeadDim];
  const std::size_t d = query.d;
  for (std::size_t i = 0; i < d; ++i) lows[i] = static_cast<std::int8_t>(from[i]);
  for (unsigned h = 0; h < query.g; ++h) {
    const std::int16_t* const q = query.natural + h * d;
    std::int32_t base = 0;
    for (std::size_t i = 0; i < d; ++i) base += q[i] * lows[i];
    std::int32_t* const head = sums + std::size_t{h} * kSpanTokens;
    for (std::size_t t = 0; t < kSpanTokens; ++t) head[t] += 4 * base;
  }
}

void sums_to_scores(const std::int32_t* sums, float lsb, float c, unsigned n, std::int32_t* x) {
  float dots[kBlockTokens];
  for (unsigned i = 0; i < n; ++i) dots[i] = static_cast<float>(sums[i]) * lsb;
  Simd::scores(dots, c, n, x);
}

std::int32_t max_score(const std::int32_t* x, std::size_t n) {
  std::int32_t most = INT32_MIN;
  for (std::size_t i = 0; i < n; ++i) most = most < x[i] ? x[i] : most;
  return most;
}

typedef std::uint32_t Words32 __attribute__((vector_size(kLargeBytes)));
typedef std::int32_t Scores32 __attribute__((vector_size(kLargeBytes)));
typedef std::uint64_t Words64 __attribute__((vector_size(kLargeBytes)));
constexpr unsigned kWords = sizeof(Words32) / sizeof(std::uint32_t);

// p of docs/arithmetic.md for y = `below`: -40 * 2^20 to 0.
Words32 powers_of_two(Words32 below) {
  constexpr unsigned kOneShift = abi::kPFractionBits - abi::kExp2Bits;
  const Words32 index = below >> 14 & 63, fraction = below & 16383;
  const Words32 c0 = Simd::lookup(abi::kExp2C0, index), c1 = Simd::lookup(abi::kExp2C1, index),
                c2 = Simd::lookup(abi::kExp2C2, index);
  const Words32 slope = c1 + ((c2 * fraction) >> 14);
  const Words32 m = (c0 + ((slope * fraction) >> 15) + abi::kExp2Rounding) >> (abi::kExp2C0Bits - abi::kExp2Bits);
  const auto right = (Words32)(-((Scores32)below >> abi::kScoreFractionBits));
  const Words32 left = right < kOneShift ? kOneShift - right : Words32{};
  const Words32 drop = right > kOneShift ? right - kOneShift : Words32{};
  const Words32 one = Words32{} + 1;
  return ((m << left) + (one << drop >> 1)) >> drop;
}

std::uint64_t probabilities(const std::int32_t* x, unsigned n, std::int32_t max, std::uint32_t* p) {
  constexpr int kDeepest = 40;  // p is 0 below 2^-32; bounding the exponent keeps smaller values in 32 bits
  const std::int64_t top = static_cast<std::int64_t>(max) << abi::kScoreFractionBits;
  const std::int64_t deepest = top - (std::int64_t{kDeepest} << abi::kScoreFractionBits);
  const std::int32_t bottom = deepest < INT32_MIN ? INT32_MIN : static_cast<std::int32_t>(deepest);
  const auto of = [&](const std::int32_t* from) {
    Scores32 scores;
    __builtin_memcpy(&scores, from, sizeof scores);
    scores = scores < bottom ? Scores32{} + bottom : scores;
    return powers_of_two((Words32)scores - static_cast<std::uint32_t>(top));
  };
  Words64 sums = {};
  unsigned i = 0;
  for (; i + kWords <= n; i += kWords) {
    const Words32 found = of(x + i);
    __builtin_memcpy(p + i, &found, sizeof found);
    sums += ((Words64)found & 0xffffffff) + ((Words64)found >> 32);
  }
  std::uint64_t sum = 0;
  for (unsigned j = 0; j < kWords / 2; ++j) sum += sums[j];
  if (i == n) return sum;
  std::int32_t rest[kWords] = {};
  __builtin_memcpy(rest, x + i, (n - i) * sizeof(*x));
  const Words32 found = of(rest);
  __builtin_memcpy(p + i, &found, (n - i) * sizeof(*p));
  for (unsigned j = 0; j < n - i; ++j) sum += found[j];
  return sum;
}

void to_weights(const std::uint32_t* p, unsigned n, double* w) {
  // p <= 2^31 is stored in the low bits of 2^52 + p, the only conversion that every instruction set has.
  for (unsigned i = 0; i < n; ++i) {
    w[i] = __builtin_bit_cast(double, std::uint64_t{p[i]} | 0x4330000000000000u) - 0x1p52;
  }
}

void add_exact(std::uint32_t p, const std::uint16_t* row, unsigned n, std::int64_t* high, std::int64_t* low) {
  for (unsigned j = 0; j < n; ++j) {
    const std::int64_t exponent = (row[j] >> 10) & 31;
    const std::int64_t mantissa = (row[j] & 0x3ff) | (exponent != 0 ? 0x400 : 0);
    const std::int64_t magnitude = mantissa << (exponent != 0 ? exponent - 1 : 0);
    const std::int64_t fixed = (row[j] & 0x8000) != 0 ? -magnitude : magnitude;
    high[j] += static_cast<std::int64_t>(p) * (fixed >> kExactSplit);
    low[j] += static_cast<std::int64_t>(p) * (fixed & ((std::int64_t{1} << kExactSplit) - 1));
  }
}

// The ends of an interval around (high + low) / z. `margin` covers the error of the numerator and the four roundings in
// this function.
struct Ends {
  double low;
  double high;
};

Ends ratio_ends(double high, double low, double error, double z) {
  const double center = high + low;
  const double margin = error + 4 * kUlp * __builtin_fabs(center);
  return {(center - margin) / z, (center + margin) / z};
}

void ratios_to_half(const double* high, const double* low, double error, double z, unsigned n, std::uint16_t* out,
                    std::uint8_t* uncertain) {
  double rounded[abi::kMaxHeadDim];
  for (unsigned j = 0; j < n; ++j) {
    const Ends ends = ratio_ends(high[j], low[j], error, z);
    rounded[j] = round_to_half(ends.low);
    uncertain[j] = rounded[j] != round_to_half(ends.high);
  }
  for (unsigned j = 0; j < n; ++j) out[j] = half_pattern(rounded[j]);
}

void ratios_to_single(const double* high, const double* low, double error, double z, unsigned n, std::uint32_t* out,
                      std::uint8_t* uncertain) {
  for (unsigned j = 0; j < n; ++j) {
    const Ends ends = ratio_ends(high[j], low[j], error, z);
    out[j] = to_single(ends.low);
    uncertain[j] = static_cast<float>(ends.low) != static_cast<float>(ends.high);
  }
}

void token_keys(const std::uint32_t* p, std::size_t stride, const std::uint64_t* weight, unsigned g, std::size_t n,
                float* keys) {
  for (std::size_t t = 0; t < n; ++t) {
    std::uint64_t key = 0;
    for (unsigned h = 0; h < g; ++h) key += p[h * stride + t] * weight[h];
    keys[t] = static_cast<float>(key);
  }
}

constexpr Kernels make_kernels(const char* name) {
  return {.name = name,
          .lanes = kLanes,
          .widen = widen,
          .decode_int8 = decode_int8,
          .decode_int4 = decode_int4,
          .expand_e4m3 = expand_e4m3,
          .dots = dots,
          .add_weighted_sums = add_weighted_sums,
          .pack_keys = pack_keys,
          .pack_values = pack_values,
          .digit_bits = Simd::kDigitBits,
          .to_digits = to_digits,
          .code_dots = code_dots,
          .add_code_sums = add_code_sums,
          .largest = largest,
          .to_scores = to_scores,
          .to_singles = to_singles,
          .add_twofold = add_twofold,
          .span_sums = span_sums,
          .sums_to_scores = sums_to_scores,
          .max_score = max_score,
          .probabilities = probabilities,
          .to_weights = to_weights,
          .add_exact = add_exact,
          .ratios_to_half = ratios_to_half,
          .ratios_to_single = ratios_to_single,
          .multiply_adds = multiply_adds,
          .token_keys = token_keys};
}

}  // namespace
}  // namespace kvdrive::fast
