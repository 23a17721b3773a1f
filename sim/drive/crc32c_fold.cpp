// SPDX-License-Identifier: Apache-2.0
// The data are a polynomial over GF(2), highest power first. 128 bits that precede others by d bits can be multiplied
// by x^d (modulo the CRC's polynomial) and added to them without changing the CRC. The steps repeat until 128 bits are
// left, whose CRC is that of all data.
#include "crc32c_fold.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvdrive {

#if defined(__x86_64__)
namespace {

// Computes x^power modulo the polynomial, with its bits reversed. The result is shifted left by one, because the
// product of two reversed numbers comes out shifted right by one. Computed by the compiler, also without optimisation:
// builds with sanitizers spent most of their time here.
consteval std::int64_t x_to_the(int power) {
  std::uint32_t value = 0x80000000;
  for (int i = 0; i < power; ++i) value = (value >> 1) ^ (value & 1 ? kCrc32cPolynomial : 0);
  return static_cast<std::int64_t>(std::uint64_t{value} << 1);
}

#define KVDRIVE_FOLD __attribute__((target("avx512f,avx512bw,avx512vl,vpclmulqdq,pclmul,sse4.2"), always_inline)) inline

// Multiplies each group of 128 bits by x^bits and adds `next`.
template <int bits>
KVDRIVE_FOLD __m512i fold(__m512i value, __m512i next) {
  const __m512i by =
      _mm512_set_epi64(x_to_the(bits - 32), x_to_the(bits + 32), x_to_the(bits - 32), x_to_the(bits + 32),
                       x_to_the(bits - 32), x_to_the(bits + 32), x_to_the(bits - 32), x_to_the(bits + 32));
  constexpr int exclusive_or = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(value, by, 0x00), _mm512_clmulepi64_epi128(value, by, 0x11),
                                   next, exclusive_or);
}

template <int bits>
KVDRIVE_FOLD __m128i fold(__m128i value, __m128i next) {
  const __m128i by = _mm_set_epi64x(x_to_the(bits - 32), x_to_the(bits + 32));
  return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(value, by, 0x00), _mm_clmulepi64_si128(value, by, 0x11)),
                       next);
}

}  // namespace

bool can_fold_crc32c() {
  static const bool can = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq") &&
                          __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
  return can;
}

__attribute__((target("avx512f,avx512bw,avx512vl,vpclmulqdq,pclmul,sse4.2"))) std::uint32_t fold_crc32c(
    std::uint32_t crc, const std::byte* data, std::size_t blocks) {
  constexpr int part = 512;  // bits of a register; four registers are a block
  const auto load = [&data](int i) __attribute__((target("avx512f"))) { return _mm512_loadu_si512(data + i * 64); };
  __m512i a = _mm512_xor_si512(load(0), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  __m512i b = load(1), c = load(2), d = load(3);
  for (data += kFoldBytes; --blocks > 0; data += kFoldBytes) {
    a = fold<4 * part>(a, load(0));
    b = fold<4 * part>(b, load(1));
    c = fold<4 * part>(c, load(2));
    d = fold<4 * part>(d, load(3));
  }
  d = fold<part>(fold<part>(fold<part>(a, b), c), d);
  __m128i quarters[4];
  _mm512_storeu_si512(quarters, d);
  __m128i last = quarters[0];
  for (int i = 1; i < 4; ++i) last = fold<128>(last, quarters[i]);
  const std::uint64_t first_half = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_extract_epi64(last, 0)));
  return static_cast<std::uint32_t>(_mm_crc32_u64(first_half, static_cast<std::uint64_t>(_mm_extract_epi64(last, 1))));
}

#else

bool can_fold_crc32c() { return false; }
std::uint32_t fold_crc32c(std::uint32_t crc, const std::byte*, std::size_t) { return crc; }

#endif

}  // namespace kvdrive
