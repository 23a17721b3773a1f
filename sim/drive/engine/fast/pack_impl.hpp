// SPDX-License-Identifier: Apache-2.0
// Rows in 8 and 4 bits to words of four codes (codes.hpp). Part of kernels_impl.hpp.
#pragma once

#include "engine/fast/codes.hpp"

namespace kvdrive::fast {
namespace {

constexpr unsigned kMostSumLanes = 16;

// The rows of a block and the bytes of their parts. The last row is repeated up to a whole block: loops of a constant
// length are faster.
struct BlockRows {
  const std::byte* row[kBlockTokens];
  alignas(64) std::uint64_t part_bytes[2][kBlockTokens];
  unsigned n;  // rows in use, and others up to a whole register
  unsigned code_bytes;
  unsigned row_bytes;

  explicit BlockRows(const CodedRows& rows)  // NOLINT(cppcoreguidelines-pro-type-member-init)
      : n((rows.n + kMostSumLanes - 1) / kMostSumLanes * kMostSumLanes),
        code_bytes(rows.four_bits ? rows.d / 2 : rows.d) {
    for (unsigned t = 0; t < rows.n; ++t) row[t] = rows.rows[t];
    for (unsigned t = rows.n; t < kBlockTokens; ++t) row[t] = rows.rows[rows.n - 1];
    const unsigned bytes = parts_of(rows.d) * (rows.four_bits ? 2 : 1), last = bytes <= 8 ? bytes : bytes - 8;
    row_bytes = code_bytes + bytes;
    std::uint64_t* const to = part_bytes[bytes > 8];
    if (bytes > 8) copy_eight(code_bytes, part_bytes[0]);
    // No byte behind the row is read, because it may be the last one of its page.
    if (code_bytes + bytes >= 8) {
      copy_eight(code_bytes + bytes - 8, to);
      for (unsigned t = 0; t < kBlockTokens; ++t) to[t] >>= 64 - 8 * last;
    } else {
      for (unsigned t = 0; t < kBlockTokens; ++t) {
        to[t] = 0;
        __builtin_memcpy(&to[t], row[t] + code_bytes, last);
      }
    }
  }

  // Copies eight bytes of each row, from byte `first` on.
  void copy_eight(unsigned first, std::uint64_t* to) const {
    for (unsigned t = 0; t < kBlockTokens; ++t) {
      const std::byte* from = row[t] + first;
      asm("" : "+r"(from));  // GCC would compute addresses in vectors, and move each of them back
      __builtin_memcpy(&to[t], from, 8);
    }
  }

  // Calls use(t, byte) for byte `index` of all rows' parts.
  template <typename Use>
  void each_byte(unsigned index, Use use) const {
    const std::uint64_t* const from = part_bytes[index / 8];
    const unsigned shift = index % 8 * 8;
    for (unsigned t = 0; t < kBlockTokens; ++t) use(t, from[t] >> shift & 255);
  }
};

constexpr unsigned part_bytes_of(bool four_bits) { return four_bits ? abi::kFormatPart / 2 : abi::kFormatPart; }

// The codes of all rows' last part, which has fewer than kFormatPart numbers, as if it had them all.
struct ShortPart {
  std::byte codes[kBlockTokens][abi::kFormatPart];

  ShortPart(const BlockRows& rows, unsigned first, unsigned numbers, bool four_bits) : codes{} {
    for (unsigned t = 0; t < rows.n; ++t) {
      const std::byte* const from = rows.row[t] + first;
      if (!four_bits) {
        __builtin_memcpy(codes[t], from, numbers);
        continue;
      }
      for (unsigned i = 0; i < numbers; ++i) {
        const std::byte two = from[i % (numbers / 2)], code = i < numbers / 2 ? two & std::byte{15} : two >> 4;
        codes[t][i % part_bytes_of(true)] |= i < part_bytes_of(true) ? code : code << 4;
      }
    }
  }
};

// Calls use(rows, first byte of the part in them, part, token) for each part of `at_once` tokens.
template <bool FourBits, unsigned AtOnce, typename Use>
void each_part(const BlockRows& rows, unsigned d, Ahead& ahead, Use use) {
  const unsigned whole = d / abi::kFormatPart, left = d % abi::kFormatPart, bytes = part_bytes_of(FourBits);
  for (unsigned t = 0; t < rows.n; t += AtOnce) {
    for (unsigned j = 0; j < whole; ++j) {
      for (unsigned eight = t / 8; eight < (t + AtOnce) / 8; ++eight) ahead.prefetch_some();
      use(rows.row + t, j * bytes, j, t);
    }
  }
  if (left == 0) return;
  const ShortPart part(rows, whole * bytes, left, FourBits);
  for (unsigned t = 0; t < rows.n; t += AtOnce) {
    const std::byte* row[AtOnce];
    for (unsigned i = 0; i < AtOnce; ++i) row[i] = part.codes[t + i];
    use(row, 0, whole, t);
  }
}

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
  std::int64_t top = 0, least = INT64_MAX;
  Zeros zeros;
  for (unsigned j = 0; j < parts_of(from.d); ++j) {
    const auto set_step = [&](unsigned t, std::uint64_t bits) {
      const auto ordered = static_cast<std::int64_t>(bits);
      keys.step[j][t] = __builtin_bit_cast(double, bits);
      top = top < ordered ? ordered : top;
      least = ordered < least ? ordered : least;
    };
    if (!from.four_bits) {
      rows.each_byte(j, [&](unsigned t, std::uint64_t e) { set_step(t, (e + 1023 - 24) << 52); });
      for (unsigned t = 0; t < kBlockTokens; ++t) keys.offset[j][t] = 128;
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
  const std::int64_t power = least & 0x7ff0000000000000;
  keys.unit = __builtin_bit_cast(double, power) * (from.four_bits ? 0.125 : 1);
}

// to[i] = words i of all four registers, run by run
void transpose_words(const Simd::Bytes::Register (&row)[4], Simd::Bytes::Register (&to)[4]) {
  using Bytes = Simd::Bytes;
  const auto a = Bytes::low_quads(row[0], row[1]), b = Bytes::low_quads(row[2], row[3]);
  const auto c = Bytes::high_quads(row[0], row[1]), e = Bytes::high_quads(row[2], row[3]);
  to[0] = Bytes::low_octets(a, b);
  to[1] = Bytes::high_octets(a, b);
  to[2] = Bytes::low_octets(c, e);
  to[3] = Bytes::high_octets(c, e);
}

template <bool FourBits>
void pack_key_codes(const BlockRows& rows, unsigned d, KeyCodes& keys) {
  using Bytes = Simd::Bytes;
  const auto pack = [&](const std::byte* const* from, unsigned byte, unsigned j, unsigned t) {
    std::uint32_t(*const words)[kBlockTokens] = &keys.words[j * kPartWords];
    for (unsigned half = 0; half < (FourBits ? 1 : 2); ++half) {
      Bytes::Register row[4], word[4];
      for (unsigned i = 0; i < 4; ++i) row[i] = Bytes::load_runs(from + i, byte + 16 * half);
      transpose_words(row, word);
      for (unsigned i = 0; i < 4; ++i) {
        if constexpr (FourBits) {
          Bytes::store(&words[i][t], Bytes::low_nibbles(word[i]));
          Bytes::store(&words[4 + i][t], Bytes::high_nibbles(word[i]));
        } else {
          Bytes::store(&words[4 * half + i][t], Bytes::flip_signs(word[i]));
        }
      }
    }
  };
  each_part<FourBits, 4 * Bytes::kRuns>(rows, d, keys.ahead, pack);
}

void pack_keys(const CodedRows& from, KeyCodes& keys) {
  const BlockRows rows(from);
  keys.ahead.start(from.ahead, from.n, rows.row_bytes, from.four_bits ? 1 : 2);
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
      for (unsigned t = 0; t < kBlockTokens; ++t) values.offset[j][t] = 128;
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
    for (unsigned t = 0; t < kBlockTokens; ++t) top = values.shift[j][t] > top ? values.shift[j][t] : top;
    for (unsigned t = 0; t < kBlockTokens; ++t) values.shift[j][t] = top - values.shift[j][t];
    values.unit[j] = two_to(static_cast<int>(top) - bias);
    largest_unit = values.unit[j] > largest_unit ? values.unit[j] : largest_unit;
  }
  values.most_code = from.four_bits ? zeros.largest_number() * 15 : kMostInt8;
  values.largest = largest_unit * values.most_code;
}

// to[4 * i ..] = byte i of all four rows, whose fours were dealt to runs. The second rows of a register go behind
// `stride` words.
void store_columns(const Simd::Bytes::Register (&row)[4], std::uint32_t* to, std::size_t stride) {
  using Bytes = Simd::Bytes;
  const auto a = Bytes::low_bytes(row[0], row[1]), b = Bytes::low_bytes(row[2], row[3]);
  const auto c = Bytes::high_bytes(row[0], row[1]), e = Bytes::high_bytes(row[2], row[3]);
  constexpr unsigned kWords = 4 * Bytes::kRuns / Bytes::kRows;
  Bytes::store_rows(to, stride, Bytes::low_pairs(a, b));
  Bytes::store_rows(to + kWords, stride, Bytes::high_pairs(a, b));
  Bytes::store_rows(to + 2 * kWords, stride, Bytes::low_pairs(c, e));
  Bytes::store_rows(to + 3 * kWords, stride, Bytes::high_pairs(c, e));
}

// `mantissa`: of the steps of INT4 numbers.
template <bool FourBits>
void pack_value_codes(const BlockRows& rows, unsigned d, const std::uint16_t (*mantissa)[kBlockTokens],
                      ValueCodes& values) {
  using Bytes = Simd::Bytes;
  constexpr unsigned kColumns = 16 * Bytes::kRuns / Bytes::kRows;
  const auto pack = [&](const std::byte* const* from, unsigned byte, unsigned j, unsigned t) {
    for (unsigned half = 0; half < abi::kFormatPart / kColumns; ++half) {
      Bytes::Register row[4];
      for (unsigned i = 0; i < 4; ++i) {
        if constexpr (FourBits) {  // times the mantissa of the step: at most 225
          row[i] = Bytes::deal(Bytes::times(Bytes::nibbles_of_part(from + i, byte, half), &mantissa[j][t + i]));
        } else {
          row[i] = Bytes::deal(Bytes::flip_signs(Bytes::load_part(from + i, byte, half)));
        }
      }
      store_columns(row, values.words[t / kWordCodes] + j * abi::kFormatPart + half * kColumns,
                    kMostParts * abi::kFormatPart);
    }
  };
  each_part<FourBits, kWordCodes * Bytes::kRows>(rows, d, values.ahead, pack);
}

void pack_values(const CodedRows& from, ValueCodes& values) {
  const BlockRows rows(from);
  std::uint16_t mantissa[kMostParts][kBlockTokens];
  values.ahead.start(from.ahead, from.n, rows.row_bytes, from.four_bits ? 1 : 2);
  read_value_parts(rows, from, values, mantissa);
  return from.four_bits ? pack_value_codes<true>(rows, from.d, mantissa, values)
                        : pack_value_codes<false>(rows, from.d, mantissa, values);
}

}  // namespace
}  // namespace kvdrive::fast
