// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/neurons.hpp"

#include <string_view>

#include "engine/fast/kernels.hpp"

namespace kvdrive::fast {

AddNeurons choose_add_neurons() {
  const std::string_view name = choose_kernels().name;
#if defined(__x86_64__)
  if (name.starts_with("avx512")) return add_neurons_avx512;
  if (name == "avx2") return add_neurons_avx2;
#elif defined(__aarch64__)
  if (name == "neon") return add_neurons_neon;
#endif
  (void)name;
  return add_neurons_scalar;
}

}  // namespace kvdrive::fast
