// SPDX-License-Identifier: Apache-2.0
// Exact sums over neurons of h times the row of down: one for each number of y, LSB 2^-48.
#pragma once

#include "common/half.hpp"
#include "common/product.hpp"
#include "common/stream.hpp"
#include "ffn/plan.hpp"

namespace kvdrive {
namespace ffn {

// 2^16 products of two halves: below 2^54 each in `low`, below 2^49 in `high`.
using NeuronSum = SplitSum<72, 66>;
using SumMemory = NeuronSum[abi::kLanes][kMostChunks];

inline void clear_sums(const Plan& plan, SumMemory& sums) {
#pragma HLS INLINE
clear_sums:
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
#pragma HLS PIPELINE II = 1
    for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
      sums[l][chunk] = {0, 0};
    }
  }
}

// In 128-bit two's complement, four to a beat.
inline void send_sums(const Plan& plan, const SumMemory& sums, Stream<beat_t>& out) {
#pragma HLS INLINE
  constexpr int kPerBeat = abi::kBeatBits / 128;
  constexpr int kBeats = abi::kLanes / kPerBeat;
  ap_int<100> row[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = row complete
  int chunk = 0;
  int beat = 0;
send_sums:
  for (int i = 0; i < plan.chunks * kBeats; ++i) {
#pragma HLS PIPELINE II = 1
    if (beat == 0) {
      for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
        row[l] = join<100>(sums[l][chunk]);
      }
    }
    beat_t word = 0;
    for (int l = 0; l < kPerBeat; ++l) {
#pragma HLS UNROLL
      set_lane<64>(word, 2 * l, ap_uint<64>(row[l]));
      set_lane<64>(word, 2 * l + 1, ap_uint<64>(row[l] >> 64));
    }
    out.write(word);
    for (int l = 0; l + kPerBeat < abi::kLanes; ++l) {
#pragma HLS UNROLL
      row[l] = row[l + kPerBeat];
    }
    const bool last = beat == kBeats - 1;
    beat = last ? 0 : beat + 1;
    if (last) ++chunk;
  }
}

inline void add_neurons(Stream<half_t>& hidden, Stream<beat_t>& downs, Plan plan, Stream<beat_t>& results) {
  SumMemory sums;
#pragma HLS ARRAY_PARTITION variable = sums complete dim = 1
  clear_sums(plan, sums);
  HalfParts h = {0, 0};
  int chunk = 0;
add_neurons:
  for (int i = 0; i < plan.neurons * plan.chunks; ++i) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = sums type = inter direction = RAW distance = 8 dependent = true
    const beat_t beat = downs.read();
    if (chunk == 0) h = unpack(hidden.read());
    HalfParts parts[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = parts complete
    unpack_lanes(beat, parts);
    for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
      add_to(sums[l][chunk], multiply(to_operand(h), parts[l]));
    }
    chunk = chunk == plan.chunks - 1 ? 0 : chunk + 1;
  }
  send_sums(plan, sums, results);
}

}  // namespace ffn
}  // namespace kvdrive
