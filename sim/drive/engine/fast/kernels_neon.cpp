// SPDX-License-Identifier: Apache-2.0
// NEON of 64-bit ARM: 2 binary64 numbers per register, 32 registers.
#include <arm_neon.h>

#include <cstdint>

#include "engine/fast/bytes.hpp"
#include "engine/fast/rounding.hpp"

namespace kvdrive::fast {
namespace {

struct Simd {
  using Vector = float64x2_t;
  using Bytes = PortableBytes;
  static constexpr unsigned kLanes = 2;
  static constexpr unsigned dot_rows(unsigned g) { return g <= 4 ? 4 : g <= 6 ? 2 : 1; }
  static constexpr unsigned sum_registers(unsigned g) { return g == 1 ? 16 : g == 2 ? 8 : g <= 5 ? 4 : 2; }

  static Vector zero() { return vdupq_n_f64(0); }
  static Vector load(const double* p) { return vld1q_f64(p); }
  static void store(double* p, Vector v) { vst1q_f64(p, v); }
  static Vector broadcast(double x) { return vdupq_n_f64(x); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return vfmaq_f64(c, a, b); }

  static Vector widen(const std::uint16_t* h) {
    std::uint32_t two;
    __builtin_memcpy(&two, h, sizeof two);
    const float32x4_t singles = vcvt_f32_f16(vreinterpret_f16_u32(vdup_n_u32(two)));
    return vcvt_f64_f32(vget_low_f32(singles));
  }

  // out[i] = n[i] * step, 32 numbers
  static void scale_part(const std::int8_t* n, float step, std::uint16_t* out) {
    for (unsigned i = 0; i < 32; i += 8) {
      const int16x8_t wide = vmovl_s8(vld1_s8(n + i));
      const float32x4_t low = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), step);
      const float32x4_t high = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_high_s16(wide))), step);
      vst1_u16(out + i, vreinterpret_u16_f16(vcvt_f16_f32(low)));
      vst1_u16(out + i + 4, vreinterpret_u16_f16(vcvt_f16_f32(high)));
    }
  }

  // out[i] = sum of the lanes of v[i]
  template <unsigned N>
  static void reduce(const Vector (&v)[N], double* out) {
    for (unsigned i = 0; i < N; ++i) out[i] = vaddvq_f64(v[i]);
  }

  // x[i] = the score of s[i]. Scaling by 2^20 is exact. The conversion rounds to even and saturates.
  static void scores(const float* s, float c, unsigned n, std::int32_t* x) {
    const float32x4_t factor = vdupq_n_f32(c), one = vdupq_n_f32(0x1p20f);
    unsigned i = 0;
    for (; i + 4 <= n; i += 4) {
      vst1q_s32(x + i, vcvtnq_s32_f32(vmulq_f32(vmulq_f32(vld1q_f32(s + i), factor), one)));
    }
    for (; i < n; ++i) x[i] = unbias_score(biased_score(s[i], c));
  }

  template <typename Index>
  static Index lookup(const std::uint32_t* table, Index index) {
    return Index{table[index[0]], table[index[1]], table[index[2]], table[index[3]]};
  }

  // 32-bit lanes: words of sixteen 2-bit codes, pairs of codes or of weights in 16 bits each, and sums.
  using Words = int16x8_t;
  using Sums = int32x4_t;
  static constexpr unsigned kSumLanes = 4;
  static Sums no_sums() { return vdupq_n_s32(0); }
  static Words load_words(const std::uint32_t* p) { return vreinterpretq_s16_u32(vld1q_u32(p)); }
  // The same two weights in each lane.
  static Words load_pair(const std::int16_t* p) {
    std::int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return vreinterpretq_s16_s32(vdupq_n_s32(pair));
  }
  static void store_sums(std::int32_t* p, Sums v) { vst1q_s32(p, v); }
  // Codes `place` of both halves of each word.
  static Words codes(Words words, int place) {
    const uint16x8_t shifted =
        vshlq_u16(vreinterpretq_u16_s16(words), vdupq_n_s16(static_cast<std::int16_t>(-2 * place)));
    return vreinterpretq_s16_u16(vandq_u16(shifted, vdupq_n_u16(3)));
  }
  static Sums add_products(Sums sums, Words codes, Words weights) {
    const int32x4_t low = vmull_s16(vget_low_s16(codes), vget_low_s16(weights));
    return vaddq_s32(sums, vpaddq_s32(low, vmull_high_s16(codes, weights)));
  }
  static Sums load_sums(const std::int32_t* p) { return vld1q_s32(p); }
  // Half `i` of the lanes as binary64.
  static Vector to_vector(Sums v, unsigned i) {
    return vcvtq_f64_s64(vmovl_s32(i == 0 ? vget_low_s32(v) : vget_high_s32(v)));
  }

  // Words of four codes; the digits of their weights have 16 bits.
  static constexpr unsigned kDigitBits = 16;
  struct Codes {
    Words even, odd;
  };
  static Codes load_codes(const std::uint32_t* p) {
    const uint16x8_t words = vreinterpretq_u16_u32(vld1q_u32(p));
    const uint16x8_t even = vandq_u16(words, vdupq_n_u16(0xff)), odd = vshrq_n_u16(words, 8);
    return {vreinterpretq_s16_u16(even), vreinterpretq_s16_u16(odd)};
  }
  // Adds the products with digit `i` of all lanes' weights.
  static Sums add_digit(Sums sums, Codes codes, const std::int32_t* digits, unsigned i) {
    const Sums even = add_products(sums, codes.even, vreinterpretq_s16_s32(vdupq_n_s32(digits[2 * i])));
    return add_products(even, codes.odd, vreinterpretq_s16_s32(vdupq_n_s32(digits[2 * i + 1])));
  }
};

}  // namespace
}  // namespace kvdrive::fast

#include "engine/fast/kernels_impl.hpp"

namespace kvdrive::fast {

const Kernels& neon_kernels() {
  static constexpr Kernels kernels = make_kernels("neon");
  return kernels;
}

}  // namespace kvdrive::fast
