// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstring>

#include "attention_codes/tops.hpp"
#include "engine/hls/kernels.hpp"

namespace kvdrive::hls {

std::uint32_t attention_codes(std::span<std::byte> memory, std::uint64_t job) {
  auto* const beats = reinterpret_cast<beat_t*>(memory.data());
  abi::AttentionJob descriptor;
  std::memcpy(&descriptor, memory.data() + job, sizeof descriptor);
  auto* const narrow = descriptor.group == 4 ? attention_codes4_g4 : attention_codes4_g1;
  auto* const wide = descriptor.group == 4 ? attention_codes_g4 : attention_codes_g1;
  auto* const top = descriptor.r == 4 ? narrow : wide;
  return top(beats, beats, beats, beats, job, memory.size() / abi::kBeatBytes);
}

}  // namespace kvdrive::hls
