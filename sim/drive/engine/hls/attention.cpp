// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "attention/tops.hpp"
#include "engine/hls/kernels.hpp"

namespace kvdrive::hls {
namespace {

// The kernels address a memory of beats, the drive a memory of bytes. A beat consists of its 64 bytes in order.
static_assert(sizeof(beat_t) == abi::kBeatBytes && alignof(beat_t) <= abi::kBeatBytes);

// The group of the job; 0 if the memory holds no whole descriptor.
unsigned group_of(std::span<const std::byte> memory, std::uint64_t job) {
  const bool inside = memory.size() >= sizeof(abi::AttentionJob) && job <= memory.size() - sizeof(abi::AttentionJob);
  return inside ? std::to_integer<unsigned>(memory[job + offsetof(abi::AttentionJob, group)]) : 0;
}

auto* top_of(unsigned group) {
  switch (group) {
    case 2:
      return attention_g2;
    case 4:
      return attention_g4;
    case 5:
      return attention_g5;
    case 8:
      return attention_g8;
    default:  // any kernel refuses a group that it is not built for
      return attention_g1;
  }
}

}  // namespace

std::uint32_t attention(std::span<std::byte> memory, std::uint64_t job) {
  auto* const beats = reinterpret_cast<beat_t*>(memory.data());
  return top_of(group_of(memory, job))(beats, beats, beats, job, memory.size() / abi::kBeatBytes);
}

}  // namespace kvdrive::hls
