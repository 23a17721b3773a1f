// SPDX-License-Identifier: Apache-2.0
// The tops of group_choice, one kernel per group size. See group_choice.hpp for arguments and result.
#pragma once

#include <cstdint>

#include "common/types.hpp"

namespace kvdrive {

// C linkage: v++ finds a kernel by its linker name.
extern "C" {

std::uint32_t group_choice_g1(const beat_t* index, const beat_t* io, beat_t* out, std::uint64_t job,
                              std::uint64_t memory_beats);
std::uint32_t group_choice_g2(const beat_t* index, const beat_t* io, beat_t* out, std::uint64_t job,
                              std::uint64_t memory_beats);
std::uint32_t group_choice_g4(const beat_t* index, const beat_t* io, beat_t* out, std::uint64_t job,
                              std::uint64_t memory_beats);
std::uint32_t group_choice_g5(const beat_t* index, const beat_t* io, beat_t* out, std::uint64_t job,
                              std::uint64_t memory_beats);
std::uint32_t group_choice_g8(const beat_t* index, const beat_t* io, beat_t* out, std::uint64_t job,
                              std::uint64_t memory_beats);

}  // extern "C"

}  // namespace kvdrive
