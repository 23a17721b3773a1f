// SPDX-License-Identifier: Apache-2.0
// AVX-512 (F, BW, DQ, VL): 8 binary64 numbers per register, 32 registers.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)  // GCC 12 warns about undefined operands in its own header
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstdint>

#include "engine/fast/bytes_avx512.hpp"

namespace kvdrive::fast {
namespace {

struct Avx512 {
  using Vector = __m512d;
  using Bytes = Avx512Bytes;
  static constexpr unsigned kLanes = 8;
  static constexpr unsigned dot_rows(unsigned g) { return g == 2 ? 8 : g <= 6 ? 4 : 3; }
  static constexpr unsigned sum_registers(unsigned g) { return g == 1 ? 16 : g <= 3 ? 8 : g <= 7 ? 4 : 2; }

  static Vector zero() { return _mm512_setzero_pd(); }
  static Vector load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(double* p, Vector v) { _mm512_storeu_pd(p, v); }
  static Vector broadcast(double x) { return _mm512_set1_pd(x); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_pd(a, b, c); }

  static Vector widen(const std::uint16_t* h) {
    return _mm512_cvtps_pd(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(h))));
  }

  // out[i] = n[i] * step, 32 numbers
  static void scale_part(const std::int8_t* n, float step, std::uint16_t* out) {
    const __m512 unit = _mm512_set1_ps(step);
    for (unsigned i = 0; i < 32; i += 16) {
      const __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(n + i)));
      const __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(wide), unit);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    }
  }

  static __m256d fold(Vector v) { return _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1)); }

  // out[i] = sum of the lanes of v[i]. Three registers write a fourth sum.
  template <unsigned N>
  static void reduce(const Vector (&v)[N], double* out) {
    if constexpr (N == 3) {
      reduce({v[0], v[1], v[2], v[2]}, out);
    } else if constexpr (N % 4 == 0) {
      for (unsigned i = 0; i < N; i += 4) {
        const __m256d a = _mm256_hadd_pd(fold(v[i]), fold(v[i + 1])),
                      b = _mm256_hadd_pd(fold(v[i + 2]), fold(v[i + 3]));
        _mm256_storeu_pd(out + i, _mm256_add_pd(_mm256_permute2f128_pd(a, b, 0x21), _mm256_blend_pd(a, b, 0xc)));
      }
    } else {
      for (unsigned i = 0; i < N; ++i) {
        const __m256d folded = fold(v[i]);
        const __m128d half = _mm_add_pd(_mm256_castpd256_pd128(folded), _mm256_extractf128_pd(folded, 1));
        out[i] = _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
      }
    }
  }

  // x[i] = the score of s[i]. Scaling by 2^20 is exact. The conversion turns values that are too small into INT32_MIN.
  static void scores(const float* s, float c, unsigned n, std::int32_t* x) {
    const __m512 factor = _mm512_set1_ps(c), one = _mm512_set1_ps(0x1p20f), most = _mm512_set1_ps(0x1p31f);
    for (unsigned i = 0; i < n; i += 16) {
      const auto lanes = static_cast<__mmask16>(n - i < 16 ? (1u << (n - i)) - 1 : 0xffff);
      const __m512 scaled = _mm512_mul_ps(_mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, s + i), factor), one);
      const __mmask16 over = _mm512_cmp_ps_mask(scaled, most, _CMP_GE_OQ);
      const __m512i score = _mm512_mask_mov_epi32(_mm512_cvtps_epi32(scaled), over, _mm512_set1_epi32(INT32_MAX));
      _mm512_mask_storeu_epi32(x + i, lanes, score);
    }
  }

  // The table has 64 entries: four registers.
  template <typename Index>
  static Index lookup(const std::uint32_t* table, Index index) {
    const auto at = (__m512i)index;
    const auto half = [&](const std::uint32_t* from) {
      return _mm512_permutex2var_epi32(_mm512_loadu_si512(from), at, _mm512_loadu_si512(from + 16));
    };
    return (Index)_mm512_mask_blend_epi32(_mm512_test_epi32_mask(at, _mm512_set1_epi32(32)), half(table),
                                          half(table + 32));
  }

  // 32-bit lanes: words of sixteen 2-bit codes, pairs of codes or of weights in 16 bits each, and sums.
  using Words = __m512i;
  using Sums = __m512i;
  static constexpr unsigned kSumLanes = 16;
  static Sums no_sums() { return _mm512_setzero_si512(); }
  static Words load_words(const std::uint32_t* p) { return _mm512_loadu_si512(p); }
  // The same two weights in each lane.
  static Words load_pair(const std::int16_t* p) {
    std::int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  static void store_sums(std::int32_t* p, Sums v) { _mm512_storeu_si512(p, v); }
  // Codes `place` of both halves of each word.
  static Words codes(Words words, int place) {
    return _mm512_and_si512(_mm512_srl_epi16(words, _mm_cvtsi32_si128(2 * place)), _mm512_set1_epi16(3));
  }
  static Sums add_products(Sums sums, Words codes, Words weights) {
    return _mm512_add_epi32(sums, _mm512_madd_epi16(codes, weights));
  }
  static Sums load_sums(const std::int32_t* p) { return _mm512_loadu_si512(p); }
  // Half `i` of the lanes as binary64.
  static Vector to_vector(Sums v, unsigned i) {
    return _mm512_cvtepi32_pd(i == 0 ? _mm512_castsi512_si256(v) : _mm512_extracti64x4_epi64(v, 1));
  }

  // Words of four codes; the digits of their weights have 16 bits.
  static constexpr unsigned kDigitBits = 16;
  struct Codes {
    Words even, odd;
  };
  static Codes load_codes(const std::uint32_t* p) {
    const Words words = _mm512_loadu_si512(p);
    return {_mm512_and_si512(words, _mm512_set1_epi32(0x00ff00ff)), _mm512_srli_epi16(words, 8)};
  }
  // Adds the products with digit `i` of all lanes' weights.
  static Sums add_digit(Sums sums, Codes codes, const std::int32_t* digits, unsigned i) {
    const Sums even = add_products(sums, codes.even, _mm512_set1_epi32(digits[2 * i]));
    return add_products(even, codes.odd, _mm512_set1_epi32(digits[2 * i + 1]));
  }
};

}  // namespace
}  // namespace kvdrive::fast
