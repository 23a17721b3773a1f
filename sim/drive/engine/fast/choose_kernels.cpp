// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "engine/fast/kernels.hpp"

namespace kvdrive::fast {
namespace {

bool always() { return true; }

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
#endif

struct Variant {
  std::string_view name;
  bool (*runs)();               // true if this machine can run it
  const Kernels& (*kernels)();  // null: it is for another architecture
};

// The best one comes first.
constexpr std::array kVariants{
#if defined(__x86_64__)
    Variant{"avx512_vnni", has_avx512_vnni, avx512_vnni_kernels},
    Variant{"avx512", has_avx512, avx512_kernels},
    Variant{"avx2", has_avx2, avx2_kernels},
    Variant{"neon", nullptr, nullptr},
#elif defined(__aarch64__)
    Variant{"neon", always, neon_kernels},     Variant{"avx512_vnni", nullptr, nullptr},
    Variant{"avx512", nullptr, nullptr},       Variant{"avx2", nullptr, nullptr},
#else
    Variant{"avx512_vnni", nullptr, nullptr},  Variant{"avx512", nullptr, nullptr},
    Variant{"avx2", nullptr, nullptr},         Variant{"neon", nullptr, nullptr},
#endif
    Variant{"scalar", always, scalar_kernels},
};

}  // namespace

const Kernels& choose_kernels() {
  const char* const forced = std::getenv("KVDRIVE_ISA");
  const std::string isa = forced == nullptr ? "" : forced;
  for (const Variant& variant : kVariants) {
    const bool runs = variant.kernels != nullptr && variant.runs();
    if (isa.empty() ? runs : isa == variant.name && runs) return variant.kernels();
    if (isa == variant.name) throw std::runtime_error("KVDRIVE_ISA=" + isa + ": this processor cannot run it");
  }
  throw std::invalid_argument("KVDRIVE_ISA must be scalar, avx2, avx512, avx512_vnni or neon, not '" + isa + "'");
}

}  // namespace kvdrive::fast
