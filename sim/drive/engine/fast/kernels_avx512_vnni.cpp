// SPDX-License-Identifier: Apache-2.0
// AVX-512 with VNNI: four products of bytes in each 32-bit lane.
#include "engine/fast/simd_avx512.hpp"

namespace kvdrive::fast {
namespace {

struct Simd : Avx512 {
  static constexpr unsigned kDigitBits = 8;
  using Codes = __m512i;
  static Codes load_codes(const std::uint32_t* p) { return _mm512_loadu_si512(p); }
  static Sums add_digit(Sums sums, Codes codes, const std::int32_t* digits, unsigned i) {
    // The intrinsic makes GCC 12 copy each sum twice.
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums) : "v"(codes), "m"(digits[i]));
    return sums;
  }
  // low + 2^8 * high
  static Sums join_bytes(Sums low, Sums high) { return _mm512_add_epi32(low, _mm512_slli_epi32(high, 8)); }
  static Sums add_products(Sums sums, Words codes, Words weights) { return _mm512_dpwssd_epi32(sums, codes, weights); }
};

}  // namespace
}  // namespace kvdrive::fast

#include "engine/fast/kernels_impl.hpp"

namespace kvdrive::fast {

const Kernels& avx512_vnni_kernels() {
  static constexpr Kernels kernels = make_kernels("avx512_vnni");
  return kernels;
}

}  // namespace kvdrive::fast
