// SPDX-License-Identifier: Apache-2.0
// Sums over codes without multipliers. Four channels of one head have a table of the sixteen sums that their weights
// can give; the upper and the lower bits of their four codes each look up one sum. A table is written entry by entry,
// in the order of a Gray code, each entry from the one before by one addition, while the table of the span before it is
// used.
//
// A beat of codes has eight slots of 32 channels. The tables of slots k and k + 4 hold the same weights, except at
// d = 256, where slots 0 to 3 and 4 to 7 are written one after the other.
#pragma once

#include "group_choice/weights.hpp"

namespace kvdrive {
namespace group_choice {

constexpr int kSlots = abi::kBeatBits / (2 * abi::kLanes);
constexpr int kWriters = kSlots / 2;     // slots that are written from weights of their own
constexpr int kQuads = abi::kLanes / 4;  // tables of a slot and plane
constexpr int kPlanes = 2;               // bits of a code
constexpr int kEntries = 16;
constexpr int kPeriod = 18;  // cycles for the entries, and two before the first one is used

using entry_t = ap_int<18>;           // |entry| <= 4 * 127 * 255
using Table = entry_t[2 * kEntries];  // of two spans
using quad_t = ap_uint<64>;           // weights of four channels
using slot_sum_t = ap_int<24>;        // |sum| <= 32 * 3 * 127 * 255

inline ap_uint<4> gray(ap_uint<4> n) {
#pragma HLS INLINE
  return n ^ (n >> 1);
}

// The bit in which gray(n) differs from gray(n - 1), n > 0.
inline ap_uint<2> changed_bit(ap_uint<4> n) {
#pragma HLS INLINE
  return n[0] ? 0 : n[1] ? 1 : n[2] ? 2 : 3;
}

// Entry gray(n) from entry gray(n - 1).
inline entry_t next_entry(entry_t before, quad_t weights, ap_uint<4> n) {
#pragma HLS INLINE
  const ap_uint<2> bit = changed_bit(n);
  const ap_int<16> weight = ap_uint<16>(weights >> (16 * bit.to_int()));
  const bool added = ap_uint<1>(gray(n) >> bit) != 0;
  return n == 0 ? entry_t(0) : added ? entry_t(before + weight) : entry_t(before - weight);
}

// The four codes of a byte: their lower or their upper bits.
inline ap_uint<4> plane_of(ap_uint<8> codes, int plane) {
#pragma HLS INLINE
  ap_uint<4> bits = 0;
  for (int i = 0; i < 4; ++i) {
#pragma HLS UNROLL
    bits[i] = codes[2 * i + plane];
  }
  return bits;
}

inline ap_uint<5> entry_place(ap_uint<1> buffer, ap_uint<4> entry) {
#pragma HLS INLINE
  return (ap_uint<5>(buffer) << 4) | entry;
}

// The sum of weight * code over the 32 channels of one slot.
inline slot_sum_t look_up(Table (&tables)[kQuads][kPlanes], ap_uint<64> codes, ap_uint<1> buffer) {
#pragma HLS INLINE
  ap_int<22> sums[kPlanes];
#pragma HLS ARRAY_PARTITION variable = sums complete
  for (int plane = 0; plane < kPlanes; ++plane) {
#pragma HLS UNROLL
    ap_int<22> part[kQuads];
#pragma HLS ARRAY_PARTITION variable = part complete
    for (int quad = 0; quad < kQuads; ++quad) {
#pragma HLS UNROLL
      part[quad] = tables[quad][plane][entry_place(buffer, plane_of(byte_at(codes, quad), plane))];
    }
    for (int half = kQuads / 2; half >= 1; half /= 2) {
#pragma HLS UNROLL
      for (int i = 0; i < half; ++i) {
#pragma HLS UNROLL
        part[i] += part[i + half];
      }
    }
    sums[plane] = part[0];
  }
  return sums[0] + (slot_sum_t(sums[1]) << 1);
}

}  // namespace group_choice
}  // namespace kvdrive
