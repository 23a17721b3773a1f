// SPDX-License-Identifier: Apache-2.0
// The loops behind neurons.hpp, written once. The source for an instruction set defines `Simd`: a register of binary32
// numbers with the operations below. Everything is in an anonymous namespace, so that no variant's code is used by
// another one.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "engine/fast/neurons.hpp"

namespace kvdrive::fast {
namespace {

constexpr unsigned kSums = 32;
constexpr unsigned kRegisters = kSums / Simd::kLanes;

template <NumberFormat F>
Simd::Vector widen(const std::byte* row, unsigned i) {
  if constexpr (F == NumberFormat::kSingle) {
    return Simd::load(reinterpret_cast<const float*>(row) + i);
  } else if constexpr (F == NumberFormat::kBfloat16) {
    return Simd::from_bfloat16(reinterpret_cast<const std::uint16_t*>(row) + i);
  } else {
    return Simd::from_half(reinterpret_cast<const std::uint16_t*>(row) + i);
  }
}

template <NumberFormat F>
float number(const std::byte* row, unsigned i) {
  if constexpr (F == NumberFormat::kSingle) return reinterpret_cast<const float*>(row)[i];
  const std::uint32_t pattern = reinterpret_cast<const std::uint16_t*>(row)[i];
  if constexpr (F == NumberFormat::kBfloat16) return std::bit_cast<float>(pattern << 16);
  const std::uint32_t magnitude = pattern & 0x7fffu, sign = (pattern & 0x8000u) << 16;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude << 13));
  // Multiplying by 2^112 changes the exponent bias from binary16 to binary32, also for subnormals.
  return std::bit_cast<float>(sign | (magnitude << 13)) * 0x1p112f;
}

// Rounds to the nearest number of the format, ties to even. Inf and NaN stay.
template <NumberFormat F>
float rounded(float x) {
  if constexpr (F == NumberFormat::kSingle) return x;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  constexpr unsigned kDropped = F == NumberFormat::kBfloat16 ? 16 : 13;
  if constexpr (F == NumberFormat::kHalf) {
    if (std::fabs(x) < 0x1p-14f) return std::nearbyint(x * 0x1p24f) * 0x1p-24f;  // subnormal: a multiple of 2^-24
    if (std::fabs(x) >= 65520.0f) return std::copysign(INFINITY, x);
  }
  const std::uint32_t half = (1u << (kDropped - 1)) - 1 + (bits >> kDropped & 1);
  return std::bit_cast<float>((bits + half) & ~((1u << kDropped) - 1));
}

template <NumberFormat F>
float dot(const float* x, const std::byte* row, unsigned n) {
  typename Simd::Vector sums[kRegisters];
  for (auto& sum : sums) sum = Simd::zero();
  unsigned i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (unsigned r = 0; r < kRegisters; ++r) {
      const unsigned at = i + r * Simd::kLanes;
      sums[r] = Simd::add(sums[r], Simd::multiply(Simd::load(x + at), widen<F>(row, at)));
    }
  }
  alignas(64) float lanes[kSums];
  for (unsigned r = 0; r < kRegisters; ++r) Simd::store(lanes + r * Simd::kLanes, sums[r]);
  for (unsigned l = 0; i + l < n; ++l) lanes[l] += x[i + l] * number<F>(row, i + l);
  for (unsigned step = kSums / 2; step > 0; step /= 2) {
    for (unsigned l = 0; l < step; ++l) lanes[l] += lanes[l + step];
  }
  return lanes[0];
}

// out[j] += values[k] * rows[k][j] for the four rows k, one after the other.
template <NumberFormat F, unsigned N>
void add_rows(const float* values, const std::byte* const* rows, unsigned n, float* out) {
  unsigned j = 0;
  for (; j + Simd::kLanes <= n; j += Simd::kLanes) {
    typename Simd::Vector sum = Simd::load(out + j);
    for (unsigned k = 0; k < N; ++k) {
      sum = Simd::add(sum, Simd::multiply(Simd::broadcast(values[k]), widen<F>(rows[k], j)));
    }
    Simd::store(out + j, sum);
  }
  for (; j < n; ++j) {
    for (unsigned k = 0; k < N; ++k) out[j] += values[k] * number<F>(rows[k], j);
  }
}

template <NumberFormat F>
void add_neurons(const ChosenNeurons& chosen, float* out) {
  constexpr unsigned kTogether = 4;
  float values[kTogether];
  const std::byte* rows[kTogether];
  unsigned waiting = 0;
  for (std::size_t i = 0; i < chosen.count; ++i) {
    const std::byte* row = chosen.memory + chosen.offsets[i];
    float value = chosen.activations[i];
    if (chosen.inputs != nullptr) {
      value = rounded<F>(value * rounded<F>(dot<F>(chosen.inputs, row, chosen.hidden)));
      row += chosen.hidden * bytes_of(F);
    }
    values[waiting] = value;
    rows[waiting] = row;
    if (++waiting == kTogether) {
      add_rows<F, kTogether>(values, rows, chosen.hidden, out);
      waiting = 0;
    }
  }
  for (unsigned k = 0; k < waiting; ++k) add_rows<F, 1>(values + k, rows + k, chosen.hidden, out);
}

void add_neurons_of(const ChosenNeurons& chosen, float* out) {
  switch (chosen.format) {
    case NumberFormat::kSingle:
      return add_neurons<NumberFormat::kSingle>(chosen, out);
    case NumberFormat::kBfloat16:
      return add_neurons<NumberFormat::kBfloat16>(chosen, out);
    case NumberFormat::kHalf:
      return add_neurons<NumberFormat::kHalf>(chosen, out);
  }
}

}  // namespace
}  // namespace kvdrive::fast
