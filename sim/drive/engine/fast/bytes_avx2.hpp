// SPDX-License-Identifier: Apache-2.0
// Registers of 32 bytes (see bytes.hpp).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace kvdrive::fast {
namespace {

struct Avx2Bytes {
  static constexpr unsigned kRuns = 2;
  static constexpr unsigned kRows = 1;
  using Register = __m256i;
  typedef std::uint32_t Quads __attribute__((vector_size(32)));

  static Register load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
  static void store(void* to, Register all) { _mm256_storeu_si256(static_cast<__m256i*>(to), all); }
  static __m128i load_run(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
  static Register load_runs(const std::byte* const* from, unsigned byte) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_run(from[0] + byte)), load_run(from[4] + byte), 1);
  }

  static Register flip_signs(Register x) { return _mm256_xor_si256(x, _mm256_set1_epi8(-128)); }
  static Register low_nibbles(Register x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
  static Register high_nibbles(Register x) { return low_nibbles(_mm256_srli_epi32(x, 4)); }
  static Register load_part(const std::byte* const* from, unsigned byte, unsigned) { return load(from[0] + byte); }
  static Register nibbles_of_part(const std::byte* const* from, unsigned byte, unsigned) {
    const Register twice = _mm256_broadcastsi128_si256(load_run(from[0] + byte));
    return low_nibbles(_mm256_srlv_epi32(twice, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)));
  }
  static Register times(Register x, const std::uint16_t* factor) {
    return _mm256_mullo_epi16(x, _mm256_set1_epi16(static_cast<short>(*factor)));
  }

  static Register low_bytes(Register a, Register b) { return _mm256_unpacklo_epi8(a, b); }
  static Register high_bytes(Register a, Register b) { return _mm256_unpackhi_epi8(a, b); }
  static Register low_pairs(Register a, Register b) { return _mm256_unpacklo_epi16(a, b); }
  static Register high_pairs(Register a, Register b) { return _mm256_unpackhi_epi16(a, b); }
  static Register low_quads(Register a, Register b) { return _mm256_unpacklo_epi32(a, b); }
  static Register high_quads(Register a, Register b) { return _mm256_unpackhi_epi32(a, b); }
  static Register low_octets(Register a, Register b) { return _mm256_unpacklo_epi64(a, b); }
  static Register high_octets(Register a, Register b) { return _mm256_unpackhi_epi64(a, b); }

  static Register deal(Register x) { return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)); }
  static void store_rows(std::uint32_t* to, std::size_t, Register all) { store(to, all); }
  template <int... order>
  static Register reorder(Register x) {
    return _mm256_shuffle_epi8(x, _mm256_setr_epi8(order..., order...));
  }
};

}  // namespace
}  // namespace kvdrive::fast
