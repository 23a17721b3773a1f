// SPDX-License-Identifier: Apache-2.0
// NEON of 64-bit ARM: 4 binary32 numbers per register.
#include <arm_neon.h>

#include <cstdint>

namespace kvdrive::fast {
namespace {

struct Simd {
  using Vector = float32x4_t;
  static constexpr unsigned kLanes = 4;
  static Vector zero() { return vdupq_n_f32(0); }
  static Vector load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, Vector v) { vst1q_f32(p, v); }
  static Vector broadcast(float x) { return vdupq_n_f32(x); }
  static Vector multiply(Vector a, Vector b) { return vmulq_f32(a, b); }
  static Vector add(Vector a, Vector b) { return vaddq_f32(a, b); }
  static Vector from_bfloat16(const std::uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
  static Vector from_half(const std::uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
};

}  // namespace
}  // namespace kvdrive::fast

#include "engine/fast/neurons_impl.hpp"

namespace kvdrive::fast {

void add_neurons_neon(const ChosenNeurons& chosen, float* out) { add_neurons_of(chosen, out); }

}  // namespace kvdrive::fast
