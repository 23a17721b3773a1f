// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/simd_avx512.hpp"

namespace kvdrive::fast {
namespace {

using Simd = Avx512;

}  // namespace
}  // namespace kvdrive::fast

#include "engine/fast/kernels_impl.hpp"

namespace kvdrive::fast {

const Kernels& avx512_kernels() {
  static constexpr Kernels kernels = make_kernels("avx512");
  return kernels;
}

}  // namespace kvdrive::fast
