// SPDX-License-Identifier: Apache-2.0
// The loops over rows in 8 and 4 bits (codes.hpp), written once for all instruction sets. Part of kernels_impl.hpp.
#pragma once

#include "engine/fast/codes.hpp"
#include "engine/fast/kernels.hpp"
#include "engine/fast/pack_impl.hpp"

namespace kvdrive::fast {
namespace {

using Vector = Simd::Vector;
constexpr unsigned kLanes = Simd::kLanes;
constexpr unsigned kSpread = Simd::kSumLanes / Simd::kLanes;  // registers of binary64 numbers for one of 32-bit sums
constexpr unsigned kDigits = 32 / Simd::kDigitBits;
constexpr unsigned kCodeHeads = 4;  // heads whose sums fit into the registers together
constexpr int kBelowBits = 30;      // bits of a probability that a second pass adds

// ---- weights to digits ----

// Writes the digits of n weights, a multiple of 16. The digits of four weights take as many words as they do.
void to_digits(const std::int32_t* weights, unsigned n, std::int32_t* digits) {
  using Bytes = Simd::Bytes;
  constexpr std::uint32_t kHalf = Simd::kDigitBits == 8 ? 0x808080 : 0x8000;  // half a digit in each but the top one
  for (unsigned i = 0; i < n; i += kWordCodes * Bytes::kRuns) {
    const auto signed_digits = (Bytes::Register)(((Bytes::Quads)Bytes::load(weights + i) + kHalf) ^ kHalf);
    if constexpr (Simd::kDigitBits == 8) {
      Bytes::store(digits + i, Bytes::reorder<0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15>(signed_digits));
    } else {  // the codes of even and of odd bytes are multiplied apart
      Bytes::store(digits + i, Bytes::reorder<0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15>(signed_digits));
    }
  }
}

// ---- products ----

// The sum of codes times weights is low + 2^16 * high, lane by lane.
struct Product {
  Simd::Sums low, high;
};

template <unsigned D, typename S>
Product combine(const typename S::Sums (&sum)[D]) {
  if constexpr (S::kDigitBits == 16) {
    return {sum[0], sum[1]};
  } else if constexpr (D == 4) {
    return {S::join_bytes(sum[0], sum[1]), S::join_bytes(sum[2], sum[3])};
  } else {
    return {S::join_bytes(sum[0], sum[1]), sum[2]};
  }
}

// Multiplies one register of each of `steps` rows of words by the D low digits of the weights of G heads.
template <unsigned G, unsigned D>
void multiply(const std::uint32_t* words, std::size_t stride, unsigned steps, const std::int32_t* digits,
              std::size_t head_digits, Product (&out)[G]) {
  typename Simd::Sums sum[G][D];
  for (auto& head : sum) {
    for (auto& s : head) s = Simd::no_sums();
  }
  for (unsigned s = 0; s < steps; ++s) {
    const auto codes = Simd::load_codes(words + s * stride);
    for (unsigned h = 0; h < G; ++h) {
      const std::int32_t* const own = digits + h * head_digits + s * kWordCodes;
      for (unsigned i = 0; i < D; ++i) sum[h][i] = Simd::add_digit(sum[h][i], codes, own, i);
    }
  }
  for (unsigned h = 0; h < G; ++h) out[h] = combine<D, Simd>(sum[h]);
}

// (low + 2^16 * high) * unit + base: exact, because both are multiples of `unit` below 2^53 of it.
Vector in_units(const Product& product, unsigned i, double unit, Vector base) {
  const Vector low = Simd::multiply_add(Simd::to_vector(product.low, i), Simd::broadcast(unit), base);
  return Simd::multiply_add(Simd::to_vector(product.high, i), Simd::broadcast(0x1p16 * unit), low);
}

// True if three digits suffice for part j of G heads.
template <unsigned G>
bool all_short(const CodeQuery& query, unsigned first, unsigned j) {
  bool all = Simd::kDigitBits == 8;
  for (unsigned h = first; h < first + G; ++h) all &= query.is_short[h * parts_of(query.d) + j] != 0;
  return all;
}

template <unsigned G>
void key_dots(const CodeQuery& query, unsigned first, KeyCodes& keys, unsigned n, double* dots) {
  constexpr unsigned kShort = Simd::kDigitBits == 8 ? kDigits - 1 : kDigits;
  const unsigned parts = parts_of(query.d);
  bool short_part[kMostParts];
  for (unsigned j = 0; j < parts; ++j) short_part[j] = all_short<G>(query, first, j);
  for (unsigned t = 0; t < n; t += Simd::kSumLanes) {
    Vector sum[G][kSpread];
    for (auto& head : sum) {
      for (Vector& s : head) s = Simd::zero();
    }
    for (unsigned j = 0; j < parts; ++j) {
      const unsigned left = query.d / kWordCodes - j * kPartWords;
      const unsigned steps = left < kPartWords ? left : kPartWords;
      const std::uint32_t* const words = &keys.words[j * kPartWords][t];
      const std::int32_t* const digits = query.digits + (first * parts + j) * abi::kFormatPart;
      const std::size_t head_digits = std::size_t{parts} * abi::kFormatPart;
      keys.ahead.prefetch_some();
      keys.ahead.prefetch_some();
      Product product[G];
      if (short_part[j]) {
        multiply<G, kShort>(words, kBlockTokens, steps, digits, head_digits, product);
      } else {
        multiply<G, kDigits>(words, kBlockTokens, steps, digits, head_digits, product);
      }
      for (unsigned i = 0; i < kSpread; ++i) {
        const Vector step = Simd::load(&keys.step[j][t + i * kLanes]);
        const Vector offset = Simd::load(&keys.offset[j][t + i * kLanes]);
        for (unsigned h = 0; h < G; ++h) {
          const unsigned own = (first + h) * parts + j;
          const Vector base = Simd::multiply_add(offset, Simd::broadcast(query.base[own]), Simd::zero());
          sum[h][i] = Simd::multiply_add(in_units(product[h], i, query.unit[own], base), step, sum[h][i]);
        }
      }
    }
    for (unsigned h = 0; h < G; ++h) {
      for (unsigned i = 0; i < kSpread; ++i) Simd::store(dots + h * kBlockTokens + t + i * kLanes, sum[h][i]);
    }
  }
}

// Calls work(constant G, first head) for tiles of at most kCodeHeads heads.
template <typename Work>
void each_code_tile(unsigned heads, Work work) {
  unsigned h = 0;
  for (; h + kCodeHeads <= heads; h += kCodeHeads) work.template operator()<kCodeHeads>(h);
  switch (heads - h) {
    case 1:
      return work.template operator()<1>(h);
    case 2:
      return work.template operator()<2>(h);
    case 3:
      return work.template operator()<3>(h);
    default:
      return;
  }
}

void code_dots(const CodeQuery& query, unsigned first, unsigned heads, KeyCodes& keys, unsigned n, double* dots) {
  each_code_tile(heads,
                 [&]<unsigned G>(unsigned h) { key_dots<G>(query, first + h, keys, n, dots + h * kBlockTokens); });
}

// ---- weighted sums of V ----

// Weights of up to kCodeHeads heads for a block of V. In part j of head h, p * 2^-shift is close to weight *
// unit[h][j].
struct ValueWeights {
  alignas(64) std::int32_t digits[kCodeHeads][kMostParts][kBlockTokens];
  double unit[kCodeHeads][kMostParts];
  double base[kCodeHeads][kMostParts];  // -unit * sum of weights times offsets
};

// The probabilities of one head, 0 behind the block's last one, and a power of two that uses all bits of a weight.
struct Probabilities {
  alignas(64) std::uint32_t p[kBlockTokens];
  int left = 0;  // a weight is p * 2^left; -1 to 30

  void read(const std::uint32_t* from, unsigned n) {
    for (unsigned t = 0; t < kBlockTokens; ++t) p[t] = t < n ? from[t] : 0;
    std::uint32_t top = 1;
    for (unsigned t = 0; t < kBlockTokens; ++t) top = p[t] > top ? p[t] : top;
    left = __builtin_clz(top) - 1;
    if (left >= 0 && top << left > static_cast<std::uint32_t>(kLargestWeight)) --left;
  }

  // The weights of a part as integers. Sets bits of `lost` where bits were lost.
  void weights(const std::uint32_t* shift, std::int32_t* out, std::uint32_t* lost) const {
    const unsigned up = left < 0 ? 0 : static_cast<unsigned>(left), down = left < 0 ? 1 : 0;
    for (unsigned t = 0; t < kBlockTokens; ++t) {
      const std::uint32_t whole = p[t] << up >> down, right = shift[t] < 31 ? shift[t] : 31;
      const std::uint32_t kept = whole >> right;
      lost[t] |= (whole ^ kept << right) | (p[t] & down);
      out[t] = static_cast<std::int32_t>(kept);
    }
  }

  // The next kBelowBits bits.
  void weights_below(const std::uint32_t* shift, std::int32_t* out) const {
    for (unsigned t = 0; t < kBlockTokens; ++t) {
      const std::uint64_t all = std::uint64_t{p[t]} << (kBelowBits + left) >> shift[t];
      out[t] = static_cast<std::int32_t>(all & ((std::uint64_t{1} << kBelowBits) - 1));
    }
  }
};

// Sets the weights of head h. Returns true if bits were lost.
bool set_weights(const Probabilities& head, const ValueCodes& values, unsigned parts, bool below, unsigned h,
                 ValueWeights& to) {
  alignas(64) std::uint32_t lost[kBlockTokens] = {};
  for (unsigned j = 0; j < parts; ++j) {
    alignas(64) std::int32_t weights[kBlockTokens];
    if (below) {
      head.weights_below(values.shift[j], weights);
    } else {
      head.weights(values.shift[j], weights, lost);
    }
    to_digits(weights, kBlockTokens, to.digits[h][j]);
    Vector offsets[1] = {Simd::zero()};
    for (unsigned t = 0; t < kBlockTokens; t += Simd::kSumLanes) {
      const auto some = Simd::load_sums(weights + t);
      for (unsigned i = 0; i < kSpread; ++i) {
        offsets[0] =
            Simd::multiply_add(Simd::to_vector(some, i), Simd::load(&values.offset[j][t + i * kLanes]), offsets[0]);
      }
    }
    double sum[1];
    Simd::template reduce<1>(offsets, sum);
    to.unit[h][j] = values.unit[j] * two_to(-head.left - (below ? kBelowBits : 0));
    to.base[h][j] = -to.unit[h][j] * sum[0];
  }
  std::uint32_t any = 0;
  for (unsigned t = 0; t < kBlockTokens; ++t) any |= lost[t];
  return any != 0;
}

template <unsigned G>
void add_products_of(const ValueWeights& weights, ValueCodes& values, unsigned n, unsigned d, double* sums) {
  const Vector one = Simd::broadcast(1);
  for (unsigned column = 0; column < d; column += Simd::kSumLanes) {
    const unsigned j = column / abi::kFormatPart;
    for (unsigned i = 0; i < 4; ++i) values.ahead.prefetch_some();
    Product product[G];
    multiply<G, kDigits>(&values.words[0][column], kMostParts * abi::kFormatPart, (n + kWordCodes - 1) / kWordCodes,
                         weights.digits[0][j], kMostParts * kBlockTokens, product);
    for (unsigned h = 0; h < G; ++h) {
      for (unsigned i = 0; i < kSpread && column + i * kLanes < d; ++i) {
        double* const to = sums + h * d + column + i * kLanes;
        const Vector terms = in_units(product[h], i, weights.unit[h][j], Simd::broadcast(weights.base[h][j]));
        Simd::store(to, Simd::multiply_add(terms, one, Simd::load(to)));
      }
    }
  }
}

void add_code_sums(const BlockWeights& block, ValueCodes& values, unsigned d, const double* enough, double* sums,
                   double* error) {
  const unsigned parts = parts_of(d);
  double unit = 0;
  for (unsigned j = 0; j < parts; ++j) unit = values.unit[j] > unit ? values.unit[j] : unit;
  each_code_tile(block.heads, [&]<unsigned G>(unsigned first) {
    ValueWeights weights;
    Probabilities heads[G];
    bool again = false;
    double lost[G];
    for (unsigned h = 0; h < G; ++h) {
      heads[h].read(block.p + (first + h) * block.stride, block.n);
      const bool any = set_weights(heads[h], values, parts, false, h, weights);
      lost[h] = any ? block.n * values.most_code * unit * two_to(-heads[h].left) : 0;
      again |= lost[h] > enough[first + h];
    }
    add_products_of<G>(weights, values, block.n, d, sums + first * d);
    if (again) {
      for (unsigned h = 0; h < G; ++h) {
        set_weights(heads[h], values, parts, true, h, weights);
        lost[h] *= two_to(-kBelowBits);
      }
      add_products_of<G>(weights, values, block.n, d, sums + first * d);
    }
    for (unsigned h = 0; h < G; ++h) error[first + h] += lost[h];
  });
}

}  // namespace
}  // namespace kvdrive::fast
