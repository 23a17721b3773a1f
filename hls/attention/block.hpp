// SPDX-License-Identifier: Apache-2.0
// Short runs of beats between memory and arrays on chip, before and after the regions: descriptor, record, bitmaps.
#pragma once

#include "common/types.hpp"

namespace kvdrive {
namespace attention {

template <int kDepth>
void load_block(const beat_t* memory, ap_uint<58> first, beat_t (&block)[kDepth]) {
#pragma HLS INLINE
load_block:
  for (int i = 0; i < kDepth; ++i) {
#pragma HLS PIPELINE II = 1
    block[i] = memory[first + i];
  }
}

template <int kDepth>
void store_block(const beat_t (&block)[kDepth], int beats, ap_uint<58> first, beat_t* memory) {
#pragma HLS INLINE
store_block:
  for (int i = 0; i < beats; ++i) {
#pragma HLS PIPELINE II = 1
    memory[first + i] = block[i];
  }
}

}  // namespace attention
}  // namespace kvdrive
