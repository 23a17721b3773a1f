// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "engine/fast/kernels.hpp"

namespace kvdrive::fast {
namespace {

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

const Kernels& choose_kernels() {
  const char* const forced = std::getenv("KVDRIVE_ISA");
  if (forced == nullptr || *forced == '\0') {
    return has_avx512() ? avx512_kernels() : has_avx2() ? avx2_kernels() : scalar_kernels();
  }
  const std::string isa = forced;
  const auto demand = [&isa](bool present) {
    if (!present) throw std::runtime_error("KVDRIVE_ISA=" + isa + ": this processor cannot run it");
  };
  if (isa == "scalar") return scalar_kernels();
  if (isa == "avx2") {
    demand(has_avx2());
    return avx2_kernels();
  }
  if (isa == "avx512") {
    demand(has_avx512());
    return avx512_kernels();
  }
  throw std::invalid_argument("KVDRIVE_ISA must be scalar, avx2 or avx512, not '" + isa + "'");
}

}  // namespace kvdrive::fast
