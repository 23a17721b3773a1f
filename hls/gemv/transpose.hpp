// SPDX-License-Identifier: Apache-2.0
// Online block transpose: 32x32 binary16 squares, one beat in and one beat out per cycle, squares back to back.
//
// Five exchange steps, at distances 16, 8, 4, 2 and 1. A step swaps one bit of the time index of an element with the
// same bit of its lane: delay the upper lanes, exchange in the second half of each period, delay the lower lanes. All
// delays are shift registers, 31 * 512 bits: one square, no double buffer, no memory that is read and written at once.
// The last element of the first column arrives in the cycle that emits this column: 31 cycles of latency.
#pragma once

#include "common/stream.hpp"

namespace kvdrive {

constexpr int kTransposeLatency = abi::kLanes - 1;

using half_beat_t = ap_uint<abi::kBeatBits / 2>;

// The delay lines of all steps: the step at distance D owns words D-1 to 2D-2.
template <int kDistance>
inline void delay(half_beat_t line[kTransposeLatency], half_beat_t word) {
#pragma HLS INLINE
  for (int i = 2 * kDistance - 2; i >= kDistance; --i) {
#pragma HLS UNROLL
    line[i] = line[i - 1];
  }
  line[kDistance - 1] = word;
}

// One step on `beat`, whose lanes move in units of up to four.
template <int kDistance>
inline void exchange(beat_t& beat, half_beat_t upper[kTransposeLatency], half_beat_t lower[kTransposeLatency],
                     ap_uint<5> time) {
#pragma HLS INLINE
  constexpr int kUnitLanes = kDistance < 4 ? kDistance : 4;
  constexpr int kUnit = 16 * kUnitLanes;
  constexpr int kApart = kDistance / kUnitLanes;
  const bool swap = (time & kDistance) != 0;
  const half_beat_t upper_out = upper[2 * kDistance - 2];
  const half_beat_t lower_out = lower[2 * kDistance - 2];
  half_beat_t upper_in = 0;
  half_beat_t lower_in = 0;
  for (int i = 0; i < abi::kBeatBits / 2 / kUnit; ++i) {
#pragma HLS UNROLL
    const int low = i / kApart * 2 * kApart + i % kApart;
    const int high = low + kApart;
    const ap_uint<kUnit> arrived = lane<kUnit>(beat, low);
    const ap_uint<kUnit> delayed = lane<kUnit>(upper_out, i);
    set_lane<kUnit>(upper_in, i, lane<kUnit>(beat, high));
    set_lane<kUnit>(lower_in, i, swap ? delayed : arrived);
    set_lane<kUnit>(beat, high, swap ? arrived : delayed);
    set_lane<kUnit>(beat, low, lane<kUnit>(lower_out, i));
  }
  delay<kDistance>(upper, upper_in);
  delay<kDistance>(lower, lower_in);
}

// One cycle of the network. `time` counts beats, modulo 32.
inline beat_t transpose_step(beat_t beat, half_beat_t upper[kTransposeLatency], half_beat_t lower[kTransposeLatency],
                             ap_uint<5> time) {
#pragma HLS INLINE
  exchange<16>(beat, upper, lower, time);
  exchange<8>(beat, upper, lower, time);
  exchange<4>(beat, upper, lower, time);
  exchange<2>(beat, upper, lower, time);
  exchange<1>(beat, upper, lower, time);
  return beat;
}

// Squares of 32 beats each that hold `rows` rows.
inline int squares_of(int rows) {
#pragma HLS INLINE
  return (rows + abi::kLanes - 1) / abi::kLanes;
}

// How blocks of 32 tokens become squares. Up to 16 rows of two blocks may share one: the lower lanes of what leaves
// belong to the first block, the upper ones to the second.
struct Squares {
  bool columns;  // false: beats pass as they are
  int rows;      // beats of a block as it arrives, one per embedding row
  int padded;    // the same as it enters the squares: missing rows are zero
  int arriving;  // beats
  int leaving;   // beats: of a block as many runs of 32 as it has squares, one beat per token
};

inline void transpose_blocks(Stream<beat_t>& in, const Squares& squares, Stream<beat_t>& out) {
  half_beat_t upper[kTransposeLatency];
#pragma HLS ARRAY_PARTITION variable = upper complete
  half_beat_t lower[kTransposeLatency];
#pragma HLS ARRAY_PARTITION variable = lower complete
  const int latency = squares.columns ? kTransposeLatency : 0;
  int row = 0;
  int arrived = 0;
transpose:
  for (int cycle = 0; cycle < squares.leaving + latency; ++cycle) {
#pragma HLS PIPELINE II = 1
    beat_t beat = 0;
    if (arrived < squares.arriving && row < squares.rows) {
      beat = in.read();
      ++arrived;
    }
    row = row + 1 == squares.padded ? 0 : row + 1;
    if (squares.columns) beat = transpose_step(beat, upper, lower, ap_uint<5>(cycle));
    if (cycle >= latency) out.write(beat);
  }
}

}  // namespace kvdrive
