// SPDX-License-Identifier: Apache-2.0
// Bursts between memory and streams: the only stages that touch an m_axi pointer, in ascending order, one beat a cycle.
#pragma once

#include "common/stream.hpp"

namespace kvdrive {

inline void read_beats(const beat_t* memory, int beats, Stream<beat_t>& out) {
read_burst:
  for (int beat = 0; beat < beats; ++beat) {
#pragma HLS PIPELINE II = 1
    out.write(memory[beat]);
  }
}

inline void write_beats(Stream<beat_t>& in, int beats, beat_t* memory) {
write_burst:
  for (int beat = 0; beat < beats; ++beat) {
#pragma HLS PIPELINE II = 1
    memory[beat] = in.read();
  }
}

}  // namespace kvdrive
