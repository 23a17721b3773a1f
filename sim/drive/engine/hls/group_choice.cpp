// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "engine/hls/kernels.hpp"
#include "group_choice/abi.hpp"
#include "group_choice/tops.hpp"

namespace kvdrive::hls {
namespace {

auto* top_of(unsigned group) {
  switch (group) {
    case 2:
      return group_choice_g2;
    case 4:
      return group_choice_g4;
    case 5:
      return group_choice_g5;
    case 8:
      return group_choice_g8;
    default:  // any kernel refuses a group that it is not built for
      return group_choice_g1;
  }
}

abi::GroupChoiceJob job_at(std::span<const std::byte> memory, std::uint64_t job) {
  abi::GroupChoiceJob fields{};
  if (memory.size() >= sizeof fields && job <= memory.size() - sizeof fields) {
    std::memcpy(&fields, memory.data() + job, sizeof fields);
  }
  return fields;
}

}  // namespace

bool chooses_groups(std::span<const std::byte> memory, std::uint64_t job) {
  const abi::GroupChoiceJob fields = job_at(memory, job);
  return std::ranges::count(abi::kGroupSizes, fields.group) != 0 &&
         std::ranges::count(abi::kChoiceHeadDims, fields.head_dim) != 0;
}

std::uint32_t group_choice(std::span<std::byte> memory, std::uint64_t job) {
  auto* const beats = reinterpret_cast<beat_t*>(memory.data());
  const unsigned group = job_at(memory, job).group;
  return top_of(group)(beats, beats, beats, job, memory.size() / abi::kBeatBytes);
}

}  // namespace kvdrive::hls
