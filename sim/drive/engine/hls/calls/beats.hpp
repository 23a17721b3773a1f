// SPDX-License-Identifier: Apache-2.0
// Converts plain memory to the kernels' beats and back. A beat holds its 64 bytes in order (common/types.hpp asserts
// its size).
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "common/types.hpp"

namespace kvdrive::hls {

// Copies `bytes` bytes to whole beats, padded with zeros.
inline std::vector<beat_t> to_beats(const void* from, std::size_t bytes) {
  std::vector<beat_t> beats((bytes + abi::kBeatBytes - 1) / abi::kBeatBytes, beat_t(0));
  if (bytes != 0) std::memcpy(static_cast<void*>(beats.data()), from, bytes);
  return beats;
}

// Copies the first `bytes` bytes of `beats`.
inline void from_beats(const beat_t* beats, void* to, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, static_cast<const void*>(beats), bytes);
}

}  // namespace kvdrive::hls
