// SPDX-License-Identifier: Apache-2.0
// Registers of 64 bytes (see bytes.hpp).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace kvdrive::fast {
namespace {

struct Avx512Bytes {
  static constexpr unsigned kRuns = 4;
  static constexpr unsigned kRows = 2;  // a part has 32 numbers
  using Register = __m512i;
  typedef std::uint32_t Quads __attribute__((vector_size(64)));

  static Register load(const void* from) { return _mm512_loadu_si512(from); }
  static void store(void* to, Register all) { _mm512_storeu_si512(to, all); }
  static __m128i run(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
  static __m256i two_runs(const std::byte* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  static Register load_runs(const std::byte* const* from, unsigned byte) {
    Register all = _mm512_castsi128_si512(run(from[0] + byte));
    all = _mm512_inserti32x4(all, run(from[4] + byte), 1);
    all = _mm512_inserti32x4(all, run(from[8] + byte), 2);
    return _mm512_inserti32x4(all, run(from[12] + byte), 3);
  }

  static Register flip_signs(Register x) { return _mm512_xor_si512(x, _mm512_set1_epi8(-128)); }
  static Register low_nibbles(Register x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
  static Register high_nibbles(Register x) { return low_nibbles(_mm512_srli_epi32(x, 4)); }

  static Register load_part(const std::byte* const* from, unsigned byte, unsigned) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(two_runs(from[0] + byte)), two_runs(from[4] + byte), 1);
  }
  static Register nibbles_of_part(const std::byte* const* from, unsigned byte, unsigned) {
    const auto first = _mm256_broadcastsi128_si256(run(from[0] + byte)),
               second = _mm256_broadcastsi128_si256(run(from[4] + byte));
    const Register both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    return low_nibbles(_mm512_srlv_epi64(both, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4)));
  }
  static Register times(Register x, const std::uint16_t* factor) {
    const auto first = _mm256_set1_epi16(static_cast<short>(factor[0])),
               second = _mm256_set1_epi16(static_cast<short>(factor[4]));
    return _mm512_mullo_epi16(x, _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1));
  }

  static Register low_bytes(Register a, Register b) { return _mm512_unpacklo_epi8(a, b); }
  static Register high_bytes(Register a, Register b) { return _mm512_unpackhi_epi8(a, b); }
  static Register low_pairs(Register a, Register b) { return _mm512_unpacklo_epi16(a, b); }
  static Register high_pairs(Register a, Register b) { return _mm512_unpackhi_epi16(a, b); }
  static Register low_quads(Register a, Register b) { return _mm512_unpacklo_epi32(a, b); }
  static Register high_quads(Register a, Register b) { return _mm512_unpackhi_epi32(a, b); }
  static Register low_octets(Register a, Register b) { return _mm512_unpacklo_epi64(a, b); }
  static Register high_octets(Register a, Register b) { return _mm512_unpackhi_epi64(a, b); }

  static Register deal(Register x) {
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15), x);
  }
  static void store_rows(std::uint32_t* to, std::size_t stride, Register all) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(all));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + stride), _mm512_extracti64x4_epi64(all, 1));
  }
  template <int... order>
  static Register reorder(Register x) {
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_setr_epi8(order...)));
  }
};

}  // namespace
}  // namespace kvdrive::fast
