// SPDX-License-Identifier: Apache-2.0
// The tops of attention_codes, one kernel per group size and width of codes: 8 bits, or 4 for `codes4`. See
// attention_codes.hpp for arguments and result.
#pragma once

#include <cstdint>

#include "common/types.hpp"

namespace kvdrive {

// C linkage: v++ finds a kernel by its linker name.
extern "C" {

std::uint32_t attention_codes_g1(const beat_t* kv, const beat_t* steps, const beat_t* io, beat_t* out,
                                 std::uint64_t job, std::uint64_t memory_beats);
std::uint32_t attention_codes_g4(const beat_t* kv, const beat_t* steps, const beat_t* io, beat_t* out,
                                 std::uint64_t job, std::uint64_t memory_beats);
std::uint32_t attention_codes4_g1(const beat_t* kv, const beat_t* steps, const beat_t* io, beat_t* out,
                                  std::uint64_t job, std::uint64_t memory_beats);
std::uint32_t attention_codes4_g4(const beat_t* kv, const beat_t* steps, const beat_t* io, beat_t* out,
                                  std::uint64_t job, std::uint64_t memory_beats);

}  // extern "C"

}  // namespace kvdrive
