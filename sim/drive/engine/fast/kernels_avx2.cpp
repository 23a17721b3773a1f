// SPDX-License-Identifier: Apache-2.0
// AVX2 with FMA and F16C: 4 binary64 numbers per register, 16 registers.
#include <immintrin.h>

#include <cstdint>

#include "engine/fast/bytes_avx2.hpp"
#include "engine/fast/rounding.hpp"

namespace kvdrive::fast {
namespace {

struct Simd {
  using Vector = __m256d;
  using Bytes = Avx2Bytes;
  static constexpr unsigned kLanes = 4;
  static constexpr unsigned dot_rows(unsigned g) { return g <= 2 ? 4 : g <= 5 ? 2 : 1; }
  static constexpr unsigned sum_registers(unsigned g) { return g == 1 ? 8 : g == 2 ? 4 : g <= 5 ? 2 : 1; }

  static Vector zero() { return _mm256_setzero_pd(); }
  static Vector load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, Vector v) { _mm256_storeu_pd(p, v); }
  static Vector broadcast(double x) { return _mm256_set1_pd(x); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }

  static Vector widen(const std::uint16_t* h) {
    return _mm256_cvtps_pd(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(h))));
  }

  // out[i] = n[i] * step, 32 numbers
  static void scale_part(const std::int8_t* n, float step, std::uint16_t* out) {
    const __m256 unit = _mm256_set1_ps(step);
    for (unsigned i = 0; i < 32; i += 8) {
      const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(n + i)));
      const __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(wide), unit);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    }
  }

  // out[i] = sum of the lanes of v[i]
  template <unsigned N>
  static void reduce(const Vector (&v)[N], double* out) {
    if constexpr (N == 4) {
      const Vector a = _mm256_hadd_pd(v[0], v[1]), b = _mm256_hadd_pd(v[2], v[3]);
      store(out, _mm256_add_pd(_mm256_permute2f128_pd(a, b, 0x21), _mm256_blend_pd(a, b, 0xc)));
    } else {
      for (unsigned i = 0; i < N; ++i) {
        const __m128d half = _mm_add_pd(_mm256_castpd256_pd128(v[i]), _mm256_extractf128_pd(v[i], 1));
        out[i] = _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
      }
    }
  }

  // x[i] = the score of s[i]. Scaling by 2^20 is exact. The conversion turns values that are too small into INT32_MIN.
  static void scores(const float* s, float c, unsigned n, std::int32_t* x) {
    const __m256 factor = _mm256_set1_ps(c), one = _mm256_set1_ps(0x1p20f), most = _mm256_set1_ps(0x1p31f);
    unsigned i = 0;
    for (; i + 8 <= n; i += 8) {
      const __m256 scaled = _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(s + i), factor), one);
      const __m256 over = _mm256_cmp_ps(scaled, most, _CMP_GE_OQ);
      const __m256 most_score = _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MAX));
      const __m256 score = _mm256_blendv_ps(_mm256_castsi256_ps(_mm256_cvtps_epi32(scaled)), most_score, over);
      _mm256_storeu_ps(reinterpret_cast<float*>(x + i), score);
    }
    for (; i < n; ++i) x[i] = unbias_score(biased_score(s[i], c));
  }

  template <typename Index>
  static Index lookup(const std::uint32_t* table, Index index) {
    return (Index)_mm256_i32gather_epi32(reinterpret_cast<const int*>(table), (__m256i)index, 4);
  }

  // 32-bit lanes: words of sixteen 2-bit codes, pairs of codes or of weights in 16 bits each, and sums.
  using Words = __m256i;
  using Sums = __m256i;
  static constexpr unsigned kSumLanes = 8;
  static Sums no_sums() { return _mm256_setzero_si256(); }
  static Words load_words(const std::uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  // The same two weights in each lane.
  static Words load_pair(const std::int16_t* p) {
    std::int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
  }
  static void store_sums(std::int32_t* p, Sums v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  // Codes `place` of both halves of each word.
  static Words codes(Words words, int place) {
    return _mm256_and_si256(_mm256_srli_epi16(words, 2 * place), _mm256_set1_epi16(3));
  }
  static Sums add_products(Sums sums, Words codes, Words weights) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(codes, weights));
  }
  static Sums load_sums(const std::int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  // Half `i` of the lanes as binary64.
  static Vector to_vector(Sums v, unsigned i) {
    return _mm256_cvtepi32_pd(i == 0 ? _mm256_castsi256_si128(v) : _mm256_extracti128_si256(v, 1));
  }

  // Words of four codes; the digits of their weights have 16 bits.
  static constexpr unsigned kDigitBits = 16;
  struct Codes {
    Words even, odd;
  };
  static Codes load_codes(const std::uint32_t* p) {
    const Words words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm256_and_si256(words, _mm256_set1_epi32(0x00ff00ff)), _mm256_srli_epi16(words, 8)};
  }
  // Adds the products with digit `i` of all lanes' weights.
  static Sums add_digit(Sums sums, Codes codes, const std::int32_t* digits, unsigned i) {
    const Sums even = add_products(sums, codes.even, _mm256_set1_epi32(digits[2 * i]));
    return add_products(even, codes.odd, _mm256_set1_epi32(digits[2 * i + 1]));
  }
};

}  // namespace
}  // namespace kvdrive::fast

#include "engine/fast/kernels_impl.hpp"

namespace kvdrive::fast {

const Kernels& avx2_kernels() {
  static constexpr Kernels kernels = make_kernels("avx2");
  return kernels;
}

}  // namespace kvdrive::fast
