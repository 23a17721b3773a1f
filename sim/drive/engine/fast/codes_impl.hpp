// SPDX-License-Identifier: Apache-2.0
// The loops over rows in 8 and 4 bits (codes.hpp), written once for all instruction sets. Part of kernels_impl.hpp.
#pragma once

#include "engine/fast/codes.hpp"
#include "engine/fast/kernels.hpp"

namespace kvdrive::fast {
namespace {

using Vector = Simd::Vector;
constexpr unsigned kLanes = Simd::kLanes;
constexpr unsigned kSpread = Simd::kSumLanes / Simd::kLanes;  // registers of binary64 numbers for one of 32-bit sums
constexpr unsigned kDigits = 32 / Simd::kDigitBits;
constexpr unsigned kMostSumLanes = 16;
constexpr unsigned kCodeHeads = 4;  // heads whose sums fit into the registers together
constexpr int kBelowBits = 30;      // bits of a probability that a second pass adds

// ---- rows to words ----

typedef std::uint8_t Bytes __attribute__((vector_size(16)));
typedef std::uint16_t Pairs __attribute__((vector_size(16)));
typedef std::uint32_t Quads __attribute__((vector_size(16)));
typedef std::uint64_t Octets __attribute__((vector_size(16)));

// Reads 16 bytes, or `bytes` if they are fewer; the rest is 0.
template <bool Whole>
Quads load_bytes(const std::byte* from, unsigned bytes) {
  Quads all = {};
  __builtin_memcpy(&all, from, Whole ? sizeof all : bytes);
  return all;
}

template <typename Vector16>
void store_bytes(std::uint32_t* to, Vector16 all) {
  __builtin_memcpy(to, &all, sizeof all);
}

// to[i] = element i of all four rows
void transpose_words(const Quads (&row)[4], Quads (&to)[4]) {
  const auto a = (Octets)__builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  const auto b = (Octets)__builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const auto c = (Octets)__builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const auto e = (Octets)__builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  to[0] = (Quads)__builtin_shufflevector(a, b, 0, 2);
  to[1] = (Quads)__builtin_shufflevector(a, b, 1, 3);
  to[2] = (Quads)__builtin_shufflevector(c, e, 0, 2);
  to[3] = (Quads)__builtin_shufflevector(c, e, 1, 3);
}

// to[4 * i ..] = byte i of all four rows
void store_columns(const Bytes (&row)[4], std::uint32_t* to) {
#define LOW_BYTES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_BYTES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
  const auto a = (Pairs)__builtin_shufflevector(row[0], row[1], LOW_BYTES);
  const auto b = (Pairs)__builtin_shufflevector(row[2], row[3], LOW_BYTES);
  const auto c = (Pairs)__builtin_shufflevector(row[0], row[1], HIGH_BYTES);
  const auto e = (Pairs)__builtin_shufflevector(row[2], row[3], HIGH_BYTES);
#undef LOW_BYTES
#undef HIGH_BYTES
  store_bytes(to, __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
  store_bytes(to + 4, __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
  store_bytes(to + 8, __builtin_shufflevector(c, e, 0, 8, 1, 9, 2, 10, 3, 11));
  store_bytes(to + 12, __builtin_shufflevector(c, e, 4, 12, 5, 13, 6, 14, 7, 15));
}

// The rows of a block, repeated up to a whole register, and the bytes of their parts.
struct BlockRows {
  const std::byte* row[kBlockTokens];
  alignas(64) std::uint64_t part_bytes[2][kBlockTokens];
  unsigned n;  // a multiple of `unit`
  unsigned code_bytes;

  BlockRows(const CodedRows& rows, unsigned unit)  // NOLINT(cppcoreguidelines-pro-type-member-init)
      : n((rows.n + unit - 1) / unit * unit), code_bytes(rows.four_bits ? rows.d / 2 : rows.d) {
    for (unsigned t = 0; t < rows.n; ++t) row[t] = rows.rows[t];
    for (unsigned t = rows.n; t < n; ++t) row[t] = rows.rows[rows.n - 1];
    const unsigned bytes = parts_of(rows.d) * (rows.four_bits ? 2 : 1), last = bytes <= 8 ? bytes : bytes - 8;
    std::uint64_t* const to = part_bytes[bytes > 8];
    if (bytes > 8) {
      for (unsigned t = 0; t < n; ++t) __builtin_memcpy(&part_bytes[0][t], row[t] + code_bytes, 8);
    }
    // No byte behind the row is read, because it may be the last one of its page.
    if (code_bytes + bytes >= 8) {
      for (unsigned t = 0; t < n; ++t) __builtin_memcpy(&to[t], row[t] + code_bytes + bytes - 8, 8);
      for (unsigned t = 0; t < n; ++t) to[t] >>= 64 - 8 * last;
    } else {
      for (unsigned t = 0; t < n; ++t) {
        to[t] = 0;
        __builtin_memcpy(&to[t], row[t] + code_bytes, last);
      }
    }
  }

  // Calls use(t, byte) for byte `index` of all rows' parts.
  template <typename Use>
  void each_byte(unsigned index, Use use) const {
    const std::uint64_t* const from = part_bytes[index / 8];
    const unsigned shift = index % 8 * 8;
    for (unsigned t = 0; t < n; ++t) use(t, from[t] >> shift & 255);
  }
};

double small_number(std::uint64_t x) { return __builtin_bit_cast(double, x | 0x4330000000000000u) - 0x1p52; }
double two_to(int exponent) { return __builtin_bit_cast(double, static_cast<std::uint64_t>(exponent + 1023) << 52); }

// The range of the zeros of INT4 parts, each plus 128.
struct Zeros {
  std::uint64_t least = 255, most = 0;

  void add(std::uint64_t biased) {
    least = biased < least ? biased : least;
    most = biased > most ? biased : most;
  }
  double largest_number() const {
    const int below = 128 - static_cast<int>(least), above = static_cast<int>(most) - 128 + static_cast<int>(kMostInt4);
    return below > above ? below : above;
  }
};

void read_key_parts(const BlockRows& rows, const CodedRows& from, KeyCodes& keys) {
  std::int64_t top = 0;
  Zeros zeros;
  for (unsigned j = 0; j < parts_of(from.d); ++j) {
    const auto set_step = [&](unsigned t, std::uint64_t bits) {
      keys.step[j][t] = __builtin_bit_cast(double, bits);
      top = top < static_cast<std::int64_t>(bits) ? static_cast<std::int64_t>(bits) : top;
    };
    if (!from.four_bits) {
      rows.each_byte(j, [&](unsigned t, std::uint64_t e) { set_step(t, (e + 1023 - 24) << 52); });
      for (unsigned t = 0; t < rows.n; ++t) keys.offset[j][t] = 128;
      continue;
    }
    // (8 + s % 8) * 2^(s / 8 - 21): s is the upper end of the binary64 pattern.
    rows.each_byte(2 * j, [&](unsigned t, std::uint64_t s) { set_step(t, (s + (1023 - 18) * 8) << 49); });
    rows.each_byte(2 * j + 1, [&](unsigned t, std::uint64_t zero) {
      keys.offset[j][t] = 128 - small_number(zero ^ 128);
      zeros.add(zero ^ 128);
    });
  }
  keys.largest = __builtin_bit_cast(double, top) * (from.four_bits ? zeros.largest_number() : kMostInt8);
}

// Calls work(constant: are there 16?, byte) for the code bytes of a row, 16 at a time.
template <typename Work>
void each_16_bytes(unsigned bytes, Work work) {
  unsigned byte = 0;
  for (; byte + 16 <= bytes; byte += 16) work.template operator()<true>(byte);
  if (byte < bytes) work.template operator()<false>(byte);
}

template <bool FourBits>
void pack_key_codes(const BlockRows& rows, unsigned d, KeyCodes& keys) {
  for (unsigned t = 0; t < rows.n; t += 4) {
    each_16_bytes(rows.code_bytes, [&]<bool Whole>(unsigned byte) {
      Quads row[4], word[4];
      for (unsigned i = 0; i < 4; ++i) row[i] = load_bytes<Whole>(rows.row[t + i] + byte, rows.code_bytes - byte);
      transpose_words(row, word);
      if constexpr (!FourBits) {
        for (unsigned i = 0; i < 4; ++i) store_bytes(&keys.words[byte / 4 + i][t], word[i] ^ 0x80808080);
      } else {
        // A byte holds one number of the lower half of the part and one of the upper half. A short part writes more
        // words than it has; later ones replace them.
        const unsigned first = byte / 2, half = Whole ? kPartWords / 2 : (d / kWordCodes - first) / 2;
        for (unsigned i = 0; i < 4; ++i) store_bytes(&keys.words[first + i][t], word[i] & 0x0f0f0f0f);
        for (unsigned i = 0; i < 4; ++i) store_bytes(&keys.words[first + half + i][t], word[i] >> 4 & 0x0f0f0f0f);
      }
    });
  }
}

void pack_keys(const CodedRows& from, KeyCodes& keys) {
  const BlockRows rows(from, kMostSumLanes);
  read_key_parts(rows, from, keys);
  return from.four_bits ? pack_key_codes<true>(rows, from.d, keys) : pack_key_codes<false>(rows, from.d, keys);
}

void read_value_parts(const BlockRows& rows, const CodedRows& from, ValueCodes& values,
                      std::uint16_t (*mantissa)[kBlockTokens]) {
  const int bias = from.four_bits ? 21 : 24;
  double largest_unit = 0;
  Zeros zeros;
  for (unsigned j = 0; j < parts_of(from.d); ++j) {
    if (!from.four_bits) {
      rows.each_byte(j, [&](unsigned t, std::uint64_t e) { values.shift[j][t] = static_cast<std::uint32_t>(e); });
      for (unsigned t = 0; t < rows.n; ++t) values.offset[j][t] = 128;
    } else {
      rows.each_byte(2 * j, [&](unsigned t, std::uint64_t s) {
        values.shift[j][t] = static_cast<std::uint32_t>(s >> 3);
        mantissa[j][t] = static_cast<std::uint16_t>(8 + (s & 7));
        values.offset[j][t] = small_number(8 + (s & 7));
      });
      rows.each_byte(2 * j + 1, [&](unsigned t, std::uint64_t zero) {
        values.offset[j][t] *= 128 - small_number(zero ^ 128);
        zeros.add(zero ^ 128);
      });
    }
    std::uint32_t top = 0;
    for (unsigned t = 0; t < rows.n; ++t) top = values.shift[j][t] > top ? values.shift[j][t] : top;
    for (unsigned t = 0; t < rows.n; ++t) values.shift[j][t] = top - values.shift[j][t];
    for (unsigned t = rows.n; t < kBlockTokens; ++t) {
      values.shift[j][t] = 0;
      values.offset[j][t] = 0;
    }
    values.unit[j] = two_to(static_cast<int>(top) - bias);
    largest_unit = values.unit[j] > largest_unit ? values.unit[j] : largest_unit;
  }
  values.most_code = from.four_bits ? zeros.largest_number() * 15 : kMostInt8;
  values.largest = largest_unit * values.most_code;
}

// `mantissa`: of the steps of INT4 parts.
template <bool FourBits>
void pack_value_codes(const BlockRows& rows, unsigned d, const std::uint16_t (*mantissa)[kBlockTokens],
                      ValueCodes& values) {
  for (unsigned t = 0; t < rows.n; t += kWordCodes) {
    std::uint32_t* const words = values.words[t / kWordCodes];
    each_16_bytes(rows.code_bytes, [&]<bool Whole>(unsigned byte) {
      Quads row[4];
      for (unsigned i = 0; i < 4; ++i) row[i] = load_bytes<Whole>(rows.row[t + i] + byte, rows.code_bytes - byte);
      Bytes low[4];
      if constexpr (!FourBits) {
        for (unsigned i = 0; i < 4; ++i) low[i] = (Bytes)(row[i] ^ 0x80808080);
        store_columns(low, words + byte);
      } else {
        // Codes times the mantissa of their step, at most 225: two of them in each 16-bit product.
        Bytes high[4];
        for (unsigned i = 0; i < 4; ++i) {
          const std::uint16_t factor = mantissa[byte / 16][t + i];
          low[i] = (Bytes)((Pairs)(row[i] & 0x0f0f0f0f) * factor);
          high[i] = (Bytes)((Pairs)(row[i] >> 4 & 0x0f0f0f0f) * factor);
        }
        const unsigned first = byte * 2, half = Whole ? abi::kFormatPart / 2 : (d - first) / 2;
        store_columns(low, words + first);
        store_columns(high, words + first + half);
      }
    });
  }
}

void pack_values(const CodedRows& from, ValueCodes& values) {
  const BlockRows rows(from, kWordCodes);
  std::uint16_t mantissa[kMostParts][kBlockTokens];
  read_value_parts(rows, from, values, mantissa);
  return from.four_bits ? pack_value_codes<true>(rows, from.d, mantissa, values)
                        : pack_value_codes<false>(rows, from.d, mantissa, values);
}

// ---- weights to digits ----

// Writes the digits of n weights, a multiple of four. The digits of four weights take as many words as they do.
void to_digits(const std::int32_t* weights, unsigned n, std::int32_t* digits) {
  constexpr std::uint32_t kHalf = Simd::kDigitBits == 8 ? 0x808080 : 0x8000;  // half a digit in each but the top one
  for (unsigned i = 0; i < n; i += kWordCodes) {
    Quads four;
    __builtin_memcpy(&four, weights + i, sizeof four);
    const auto bytes = (Bytes)((four + kHalf) ^ kHalf);
    Bytes ordered;
    if constexpr (Simd::kDigitBits == 8) {
      ordered = __builtin_shufflevector(bytes, bytes, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    } else {  // the codes of even and of odd bytes are multiplied apart
      ordered = __builtin_shufflevector(bytes, bytes, 0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15);
    }
    __builtin_memcpy(digits + i, &ordered, sizeof ordered);
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

template <unsigned G, unsigned D>
void key_dots(const CodeQuery& query, unsigned first, const KeyCodes& keys, unsigned n, double* dots) {
  const unsigned parts = parts_of(query.d);
  for (unsigned t = 0; t < n; t += Simd::kSumLanes) {
    Vector sum[G][kSpread];
    for (auto& head : sum) {
      for (Vector& s : head) s = Simd::zero();
    }
    for (unsigned j = 0; j < parts; ++j) {
      const unsigned left = query.d / kWordCodes - j * kPartWords;
      Product product[G];
      multiply<G, D>(&keys.words[j * kPartWords][t], kBlockTokens, left < kPartWords ? left : kPartWords,
                     query.digits + (first * parts + j) * abi::kFormatPart, std::size_t{parts} * abi::kFormatPart,
                     product);
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

void code_dots(const CodeQuery& query, unsigned first, unsigned heads, const KeyCodes& keys, unsigned n, double* dots) {
  each_code_tile(heads, [&]<unsigned G>(unsigned h) {
    constexpr unsigned kShort = Simd::kDigitBits == 8 ? kDigits - 1 : kDigits;
    double* const to = dots + h * kBlockTokens;
    return query.short_weights ? key_dots<G, kShort>(query, first + h, keys, n, to)
                               : key_dots<G, kDigits>(query, first + h, keys, n, to);
  });
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
void add_products_of(const ValueWeights& weights, const ValueCodes& values, unsigned n, unsigned d, double* sums) {
  const Vector one = Simd::broadcast(1);
  for (unsigned column = 0; column < d; column += Simd::kSumLanes) {
    const unsigned j = column / abi::kFormatPart;
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

void add_code_sums(const BlockWeights& block, const ValueCodes& values, unsigned d, const double* enough, double* sums,
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
