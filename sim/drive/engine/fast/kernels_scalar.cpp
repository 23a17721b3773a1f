// SPDX-License-Identifier: Apache-2.0
// The variant for any processor. The compiler may vectorise it with the base instruction set.
#include <cstdint>

#include "engine/fast/bytes.hpp"
#include "engine/fast/rounding.hpp"

namespace kvdrive::fast {
namespace {

struct Simd {
  using Vector = double;
  using Bytes = PortableBytes;
  static constexpr unsigned kLanes = 1;
  static constexpr unsigned dot_rows(unsigned g) { return g == 1 ? 4 : g == 2 ? 2 : 1; }
  static constexpr unsigned sum_registers(unsigned g) { return g == 1 ? 8 : g == 2 ? 4 : g == 4 ? 2 : 1; }

  static Vector zero() { return 0.0; }
  static Vector load(const double* p) { return *p; }
  static void store(double* p, Vector v) { *p = v; }
  static Vector broadcast(double x) { return x; }
  // The product is exact, so a fused multiply-add would give the same bits.
  static Vector multiply_add(Vector a, Vector b, Vector c) { return a * b + c; }

  static Vector widen(const std::uint16_t* h) {
    const std::uint32_t magnitude = *h & 0x7fffu, sign = std::uint32_t{*h & 0x8000u} << 16;
    if (magnitude >= 0x7c00) return __builtin_nan("");
    // Multiplying by 2^112 changes the exponent bias from binary16 to binary32, also for subnormals.
    return static_cast<double>(__builtin_bit_cast(float, sign | (magnitude << 13))) * 0x1p112;
  }

  // out[i] = n[i] * step, 32 numbers
  static void scale_part(const std::int8_t* n, float step, std::uint16_t* out) {
    for (unsigned i = 0; i < 32; ++i) out[i] = half_pattern(static_cast<double>(static_cast<float>(n[i]) * step));
  }

  template <unsigned N>
  static void reduce(const Vector (&v)[N], double* out) {
    for (unsigned i = 0; i < N; ++i) out[i] = v[i];
  }

  // x[i] = the score of s[i]
  static void scores(const float* s, float c, unsigned n, std::int32_t* x) {
    for (unsigned i = 0; i < n; ++i) x[i] = unbias_score(biased_score(s[i], c));
  }

  template <typename Index>
  static Index lookup(const std::uint32_t* table, Index index) {
    return Index{table[index[0]], table[index[1]], table[index[2]], table[index[3]]};
  }

  // A 32-bit word of sixteen 2-bit codes, a pair of codes or of weights in 16 bits each, or a sum.
  using Words = std::int32_t;
  using Sums = std::int32_t;
  static constexpr unsigned kSumLanes = 1;
  static Sums no_sums() { return 0; }
  static Words load_words(const std::uint32_t* p) { return static_cast<Words>(*p); }
  static Words load_pair(const std::int16_t* p) {
    Words pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return pair;
  }
  static void store_sums(std::int32_t* p, Sums v) { *p = v; }
  // Codes `place` of both halves of the word.
  static Words codes(Words words, int place) { return words >> 2 * place & 0x00030003; }
  static Sums add_products(Sums sums, Words codes, Words weights) {
    return sums + (codes & 3) * static_cast<std::int16_t>(weights) + (codes >> 16) * (weights >> 16);
  }
  static Sums load_sums(const std::int32_t* p) { return *p; }
  static Vector to_vector(Sums v, unsigned) { return v; }

  // A word of four codes; the digits of their weights have 16 bits.
  static constexpr unsigned kDigitBits = 16;
  using Codes = std::uint32_t;
  static Codes load_codes(const std::uint32_t* p) { return *p; }
  // Adds the products with digit `i` of the weights: those of codes 0 and 2 in one word, of 1 and 3 in the next.
  static Sums add_digit(Sums sums, Codes codes, const std::int32_t* digits, unsigned i) {
    for (unsigned k = 0; k < 4; ++k) {
      const std::int32_t pair = digits[2 * i + k % 2];
      sums += static_cast<std::int32_t>(codes >> 8 * k & 255) * (k < 2 ? static_cast<std::int16_t>(pair) : pair >> 16);
    }
    return sums;
  }
};

}  // namespace
}  // namespace kvdrive::fast

#include "engine/fast/kernels_impl.hpp"

namespace kvdrive::fast {

const Kernels& scalar_kernels() {
  static constexpr Kernels kernels = make_kernels("scalar");
  return kernels;
}

}  // namespace kvdrive::fast
