// SPDX-License-Identifier: Apache-2.0
// Chosen keys, in ascending index order: as masks, as 512-bit words of a bitmap, and as indices.
//
// Rate: one group of keys a cycle. Among keys equal to the threshold the first ones, so the lowest indices, win.
#pragma once

#include "argtopk/cut.hpp"

namespace kvdrive {

constexpr int kIndicesPerBeat = 16;
constexpr int kGroupsPerWord = abi::kBeatBits / kGroupKeys;

using index_t = ap_uint<17>;
static_assert(abi::kMaxTokens <= (1 << 17), "an index has 17 bits");

inline int bitmap_words(int keys) {
#pragma HLS INLINE
  return (keys + abi::kBeatBits - 1) / abi::kBeatBits;
}

// The chosen keys of one group. `ties_left`: of the keys equal to the threshold, those still to come.
inline mask_t mark_group(const group_t& group, ordinal_t threshold, rank_t& ties_left) {
#pragma HLS INLINE
  mask_t mask = 0;
  ap_uint<5> ties = 0;
  for (int i = 0; i < kGroupKeys; ++i) {
#pragma HLS UNROLL
    const ordinal_t ordinal = lane<32>(group, i);
    const bool tie = ordinal == threshold;
    mask[i] = ordinal > threshold || (tie && ties < ties_left);
    ties += tie;
  }
  ties_left = ties < ties_left ? rank_t(ties_left - ties) : rank_t(0);
  return mask;
}

inline void mark_chosen(Stream<group_t>& groups, int n, const Cut& cut, Stream<mask_t>& masks) {
  rank_t ties_left = cut.ties;
mark:
  for (int first = 0; first < n; first += kGroupKeys) {
#pragma HLS PIPELINE II = 1
    masks.write(mark_group(groups.read(), cut.threshold, ties_left));
  }
}

// Bits beyond n are 0.
inline void pack_bitmap(Stream<mask_t>& masks, int n, Stream<beat_t>& words) {
  const int groups = groups_of(n);
  const int padded_groups = bitmap_words(n) * kGroupsPerWord;
  beat_t word = 0;
bitmap:
  for (int group = 0; group < padded_groups; ++group) {
#pragma HLS PIPELINE II = 1
    mask_t mask = 0;
    if (group < groups) mask = masks.read();
    word >>= kGroupKeys;
    word.range(abi::kBeatBits - 1, abi::kBeatBits - kGroupKeys) = mask;
    if (group % kGroupsPerWord == kGroupsPerWord - 1) words.write(word);
  }
}

// 16 indices to a beat, the last beat zero padded.
inline void pack_indices(Stream<mask_t>& masks, int n, Stream<beat_t>& beats) {
  const int groups = groups_of(n);
  index_t held[kIndicesPerBeat];  // a new index overwrites the slot it belongs to, of this beat or of the next one
#pragma HLS ARRAY_PARTITION variable = held complete
  for (int slot = 0; slot < kIndicesPerBeat; ++slot) {
#pragma HLS UNROLL
    held[slot] = 0;
  }
  ap_uint<4> filled = 0;
indices:
  for (int group = 0; group <= groups; ++group) {  // one more, for the last beat
#pragma HLS PIPELINE II = 1
    const bool flush = group == groups;
    mask_t mask = 0;
    if (!flush) mask = masks.read();
    // Places in this beat or, from 16 on, in the next one; keys before the group do not delay the counting within it.
    ap_uint<5> place[kGroupKeys];
#pragma HLS ARRAY_PARTITION variable = place complete
    ap_uint<5> count = 0;
    for (int i = 0; i < kGroupKeys; ++i) {
#pragma HLS UNROLL
      place[i] = filled + count;
      count += mask[i] ? 1 : 0;
    }
    const ap_uint<5> end = filled + count;
    beat_t beat = 0;
    for (int slot = 0; slot < kIndicesPerBeat; ++slot) {
#pragma HLS UNROLL
      // At most one key of the group falls into a slot.
      bool in_beat = false;
      bool in_next = false;
      ap_uint<4> key = 0;
      for (int i = 0; i < kGroupKeys; ++i) {
#pragma HLS UNROLL
        const bool here = mask[i] && place[i].range(3, 0) == slot;
        in_beat = in_beat || (here && !place[i][4]);
        in_next = in_next || (here && place[i][4]);
        key |= here ? ap_uint<4>(i) : ap_uint<4>(0);
      }
      const index_t fresh = group * kGroupKeys + key;
      const index_t index = in_beat ? fresh : held[slot];
      set_lane<32>(beat, slot, in_beat || slot < filled ? ap_uint<32>(index) : ap_uint<32>(0));
      if (in_beat || in_next) held[slot] = fresh;
    }
    if (end[4] || (flush && filled != 0)) beats.write(beat);
    filled = end.range(3, 0);
  }
}

}  // namespace kvdrive
