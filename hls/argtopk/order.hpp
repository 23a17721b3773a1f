// SPDX-License-Identifier: Apache-2.0
// Keys as unsigned integers in the order of their values, sixteen to a group.
//
// Rate: one group a cycle. An ordinal of 0 stands for no key: no finite key has it, and it is below all of them.
// Binary32 keys give an ordinal in [0x00800000, 0xff7fffff], -0 that of +0; binary16 magnitudes one from 0x80000000 on
// whose lower 16 bits are 0.
#pragma once

#include "common/stream.hpp"

namespace kvdrive {

constexpr int kGroupKeys = 16;

using ordinal_t = ap_uint<32>;
using group_t = ap_uint<32 * kGroupKeys + 1>;  // ordinals, lane 0 first; the top bit marks an Inf or NaN among the keys
using mask_t = ap_uint<kGroupKeys>;            // one bit per key of a group

constexpr int kNonFiniteBit = 32 * kGroupKeys;

inline int groups_of(int keys) {
#pragma HLS INLINE
  return (keys + kGroupKeys - 1) / kGroupKeys;
}

inline ordinal_t order_single(single_t key) {
#pragma HLS INLINE
  const bool negative = key[31] && key.range(30, 0) != 0;
  return negative ? ordinal_t(~key) : ordinal_t(key | 0x80000000);
}

inline ordinal_t order_magnitude(half_t key) {
#pragma HLS INLINE
  return ordinal_t(key.range(14, 0)) << 16 | 0x80000000;
}

// Memory beats of 16 binary32 or 32 binary16 keys -> groups. Lanes beyond `n` hold no key.
inline void order_keys(Stream<beat_t>& beats, int n, int key_type, Stream<group_t>& groups) {
  const bool magnitudes = key_type == abi::kMagnitude16;
  beat_t beat = 0;
  bool second_half = false;
order:
  for (int first = 0; first < n; first += kGroupKeys) {
#pragma HLS PIPELINE II = 1
    if (!second_half) beat = beats.read();
    group_t group = 0;
    for (int i = 0; i < kGroupKeys; ++i) {
#pragma HLS UNROLL
      const half_t half = lane<16>(beat, i);
      const single_t single = lane<32>(beat, i);
      const bool used = first + i < n;
      const bool finite = magnitudes ? half.range(14, 10) != 0x1f : single.range(30, 23) != 0xff;
      set_lane<32>(group, i, !used ? ordinal_t(0) : magnitudes ? order_magnitude(half) : order_single(single));
      if (used && !finite) group[kNonFiniteBit] = 1;
    }
    groups.write(group);
    beat >>= 16 * kGroupKeys;
    second_half = magnitudes && !second_half;
  }
}

}  // namespace kvdrive
