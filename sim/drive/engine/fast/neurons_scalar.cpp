// SPDX-License-Identifier: Apache-2.0
// The variant for any processor. The compiler may vectorise it with the base instruction set.
#include <bit>
#include <cstdint>

namespace kvdrive::fast {
namespace {

struct Simd {
  using Vector = float;
  static constexpr unsigned kLanes = 1;
  static Vector zero() { return 0; }
  static Vector load(const float* p) { return *p; }
  static void store(float* p, Vector v) { *p = v; }
  static Vector broadcast(float x) { return x; }
  static Vector multiply(Vector a, Vector b) { return a * b; }
  static Vector add(Vector a, Vector b) { return a + b; }
  static Vector from_bfloat16(const std::uint16_t* p) { return std::bit_cast<float>(std::uint32_t{*p} << 16); }
  static Vector from_half(const std::uint16_t* p) {
    const std::uint32_t magnitude = *p & 0x7fffu, sign = std::uint32_t{*p & 0x8000u} << 16;
    if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude << 13));
    return std::bit_cast<float>(sign | (magnitude << 13)) * 0x1p112f;
  }
};

}  // namespace
}  // namespace kvdrive::fast

#include "engine/fast/neurons_impl.hpp"

namespace kvdrive::fast {

void add_neurons_scalar(const ChosenNeurons& chosen, float* out) { add_neurons_of(chosen, out); }

}  // namespace kvdrive::fast
