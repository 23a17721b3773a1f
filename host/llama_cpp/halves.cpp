// SPDX-License-Identifier: Apache-2.0
#include "halves.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "ggml_functions.hpp"

namespace kvdrive::llama {
namespace {

#if defined(__x86_64__)
constexpr std::size_t kLanes = 8;

// Both return how many numbers were converted, whole vectors.
__attribute__((target("avx,f16c"))) std::size_t narrow(const float* numbers, std::size_t count, std::uint16_t* halves) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i converted = _mm256_cvtps_ph(_mm256_loadu_ps(numbers + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + i), converted);
  }
  return i;
}
__attribute__((target("avx,f16c"))) std::size_t widen(const std::uint16_t* halves, std::size_t count, float* numbers) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i from = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + i));
    _mm256_storeu_ps(numbers + i, _mm256_cvtph_ps(from));
  }
  return i;
}

bool has_vectors() {
  static const bool has = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  return has;
}
#else
std::size_t narrow(const float*, std::size_t, std::uint16_t*) { return 0; }
std::size_t widen(const std::uint16_t*, std::size_t, float*) { return 0; }
bool has_vectors() { return false; }
#endif

}  // namespace

void to_halves(const float* numbers, std::size_t count, std::uint16_t* halves) {
  const std::size_t done = has_vectors() ? narrow(numbers, count, halves) : 0;
  if (done < count) {
    ggml().ggml_fp32_to_fp16_row(numbers + done, halves + done, static_cast<std::int64_t>(count - done));
  }
}

void to_singles(const std::uint16_t* halves, std::size_t count, float* numbers) {
  const std::size_t done = has_vectors() ? widen(halves, count, numbers) : 0;
  if (done < count) {
    ggml().ggml_fp16_to_fp32_row(halves + done, numbers + done, static_cast<std::int64_t>(count - done));
  }
}

}  // namespace kvdrive::llama
