// SPDX-License-Identifier: Apache-2.0
// The sums of a feed-forward part over chosen neurons, from rows in memory.
//
// They are those of a dense layer that is computed in the stored precision with sums in binary32, in a fixed order:
// - A product is rounded to binary32. Products of two numbers in bfloat16 or in binary16 are exact there.
// - up[i] = sum of x[j] * u[i][j]: 32 sums, of which sum l adds the products l, l + 32, ... in this order. Then sum l
//   and sum l + 16 are added, then l and l + 8, and so on. up[i] is rounded to the stored precision.
// - value[i] = activation[i] * up[i], rounded to the stored precision. Without a gate it is activation[i].
// - out[j] += value[i] * d[i][j], neuron by neuron in the order given, in binary32. The caller rounds the sum once.
// So every instruction set gives the same bits, and out does not depend on where the rows lie.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvdrive::fast {

enum class NumberFormat : std::uint8_t { kSingle, kBfloat16, kHalf };

constexpr std::size_t bytes_of(NumberFormat format) { return format == NumberFormat::kSingle ? 4 : 2; }

// Chosen neurons of one token. Row i begins at memory + offsets[i]. It holds u[i] and d[i], `hidden` numbers each, or
// only d[i] where `inputs` is null.
struct ChosenNeurons {
  const std::byte* memory;
  const std::int64_t* offsets;
  const float* activations;
  std::size_t count;
  const float* inputs;
  unsigned hidden;
  NumberFormat format;
};

using AddNeurons = void (*)(const ChosenNeurons& chosen, float* out);

void add_neurons_scalar(const ChosenNeurons& chosen, float* out);
#if defined(__x86_64__)
void add_neurons_avx2(const ChosenNeurons& chosen, float* out);
void add_neurons_avx512(const ChosenNeurons& chosen, float* out);
#elif defined(__aarch64__)
void add_neurons_neon(const ChosenNeurons& chosen, float* out);
#endif

// The variant for the instruction set that `choose_kernels` has chosen. Throws what it throws.
AddNeurons choose_add_neurons();

}  // namespace kvdrive::fast
