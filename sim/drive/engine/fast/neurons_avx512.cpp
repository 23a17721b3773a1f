// SPDX-License-Identifier: Apache-2.0
// AVX-512: 16 binary32 numbers per register.
#include <immintrin.h>

#include <cstdint>

namespace kvdrive::fast {
namespace {

struct Simd {
  using Vector = __m512;
  static constexpr unsigned kLanes = 16;
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static Vector broadcast(float x) { return _mm512_set1_ps(x); }
  static Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  // All lanes are chosen: the forms without a mask name an undefined register, of which GCC 12 warns.
  static Vector from_bfloat16(const std::uint16_t* p) {
    const __m256i stored = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, stored), 16));
  }
  static Vector from_half(const std::uint16_t* p) {
    return _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static constexpr __mmask16 kAll = 0xffff;
};

}  // namespace
}  // namespace kvdrive::fast

#include "engine/fast/neurons_impl.hpp"

namespace kvdrive::fast {

void add_neurons_avx512(const ChosenNeurons& chosen, float* out) { add_neurons_of(chosen, out); }

}  // namespace kvdrive::fast
