// SPDX-License-Identifier: Apache-2.0
// AVX2: 8 binary32 numbers per register.
#include <immintrin.h>

#include <cstdint>

namespace kvdrive::fast {
namespace {

struct Simd {
  using Vector = __m256;
  static constexpr unsigned kLanes = 8;
  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static Vector broadcast(float x) { return _mm256_set1_ps(x); }
  static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector from_bfloat16(const std::uint16_t* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static Vector from_half(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};

}  // namespace
}  // namespace kvdrive::fast

#include "engine/fast/neurons_impl.hpp"

namespace kvdrive::fast {

void add_neurons_avx2(const ChosenNeurons& chosen, float* out) { add_neurons_of(chosen, out); }

}  // namespace kvdrive::fast
