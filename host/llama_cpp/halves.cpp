// SPDX-License-Identifier: Apache-2.0
#include "halves.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "ggml_functions.hpp"

namespace kvdrive::llama {
namespace {

void one_by_one(const float* numbers, std::size_t count, std::uint16_t* halves) {
  ggml().ggml_fp32_to_fp16_row(numbers, halves, static_cast<std::int64_t>(count));
}

#if defined(__x86_64__)
// Returns how many numbers were converted, whole vectors.
__attribute__((target("avx,f16c"))) std::size_t by_vectors(const float* numbers, std::size_t count,
                                                           std::uint16_t* halves) {
  constexpr std::size_t kLanes = 8;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i converted = _mm256_cvtps_ph(_mm256_loadu_ps(numbers + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + i), converted);
  }
  return i;
}

bool has_vectors() {
  static const bool has = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  return has;
}
#else
std::size_t by_vectors(const float*, std::size_t, std::uint16_t*) { return 0; }
bool has_vectors() { return false; }
#endif

}  // namespace

void to_halves(const float* numbers, std::size_t count, std::uint16_t* halves) {
  const std::size_t done = has_vectors() ? by_vectors(numbers, count, halves) : 0;
  if (done < count) one_by_one(numbers + done, count - done, halves + done);
}

}  // namespace kvdrive::llama
