// SPDX-License-Identifier: Apache-2.0
// Exact accumulators of p.v: one per query head, lane and slot.
//
// Beats of V go through the slots in turn, and a head dimension owns one or more slots (sums of integers have no
// order). So five beats or more lie between two additions to the same accumulator, whatever the head dimension, and the
// loop around read, add and write has time for its pipeline.
#pragma once

#include "common/accumulate.hpp"
#include "common/stream.hpp"
#include "gemv/multiply.hpp"

namespace kvdrive {

constexpr int kAccSlots = 8;

// Slots in use: the largest multiple of `chunks` up to eight.
inline int acc_slots(int chunks) {
#pragma HLS INLINE
  constexpr int kSlots[kMaxChunks] = {8, 8, 6, 8, 5, 6, 7, 8};
  return kSlots[chunks - 1];
}

template <int kGroup>
inline void clear_accumulators(AccSum sums[kGroup][abi::kLanes][kAccSlots]) {
#pragma HLS INLINE
clear:
  for (int slot = 0; slot < kAccSlots; ++slot) {
#pragma HLS PIPELINE II = 1
    for (int h = 0; h < kGroup; ++h) {
#pragma HLS UNROLL
      for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
        sums[h][l][slot] = zero_acc();
      }
    }
  }
}

inline void add_terms(const Term terms[abi::kLanes], int slot, AccSum sums[abi::kLanes][kAccSlots]) {
#pragma HLS INLINE
  for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
    add_to(sums[l][slot], terms[l]);
  }
}

// Sums over the slots of each dimension, in 128-bit two's complement, four to a beat: [chunks][kGroup][32].
template <int kGroup>
inline void drain_accumulators(const AccSum sums[kGroup][abi::kLanes][kAccSlots], int chunks, Stream<beat_t>& out) {
#pragma HLS INLINE
  constexpr int kPerBeat = abi::kBeatBits / 128;
  constexpr int kValues = kGroup * abi::kLanes;
  acc_t row[kValues];
#pragma HLS ARRAY_PARTITION variable = row complete
drain_chunks:
  for (int chunk = 0; chunk < chunks; ++chunk) {
  join_slots:
    for (int slot = chunk; slot < acc_slots(chunks); slot += chunks) {
#pragma HLS PIPELINE II = 1
      for (int i = 0; i < kValues; ++i) {
#pragma HLS UNROLL
        const acc_t joined = join_acc(sums[i / abi::kLanes][i % abi::kLanes][slot]);
        row[i] = slot == chunk ? joined : acc_t(row[i] + joined);
      }
    }
  send:
    for (int beat = 0; beat < kValues / kPerBeat; ++beat) {
#pragma HLS PIPELINE II = 1
      beat_t word = 0;
      for (int i = 0; i < kPerBeat; ++i) {
#pragma HLS UNROLL
        set_lane<64>(word, 2 * i, ap_uint<64>(row[i]));
        set_lane<64>(word, 2 * i + 1, ap_uint<64>(row[i] >> 64));
      }
      out.write(word);
      for (int i = 0; i + kPerBeat < kValues; ++i) {
#pragma HLS UNROLL
        row[i] = row[i + kPerBeat];
      }
    }
  }
}

}  // namespace kvdrive
