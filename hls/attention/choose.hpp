// SPDX-License-Identifier: Apache-2.0
// The choice of SparF: the passes of argtopk over keys that were made on chip, into a bitmap that stays on chip.
#pragma once

#include "argtopk/pass.hpp"
#include "attention/keys.hpp"
#include "common/dataflow.hpp"

namespace kvdrive::attention {

inline void send_keys(GroupMemory& keys, int n, Stream<group_t>& groups) {
replay:
  for (int i = 0; i < groups_of(n); ++i) {
#pragma HLS PIPELINE II = 1
    groups.write(keys[i]);
  }
}

inline void keep_words(Stream<beat_t>& words, int count, MaskMemory& bitmap) {
keep:
  for (int i = 0; i < count; ++i) {
#pragma HLS PIPELINE II = 1
    bitmap[i] = words.read();
  }
}

inline void run_choice_pass(int pass, int n, int k, GroupMemory& keys, const Cut& before, Histograms& histograms,
                            Cut& after, MaskMemory& bitmap) {
#pragma HLS DATAFLOW
  const int emitted = pass == kEmitPass ? n : 0;
  const int words = bitmap_words(emitted);
  Fifo<group_t, 4> groups("choice_groups");
#pragma HLS STREAM variable = groups depth = 4
  Fifo<mask_t, 4> chosen("choice_masks");
#pragma HLS STREAM variable = chosen depth = 4
  Fifo<beat_t, 2> bitmap_words("choice_words");
#pragma HLS STREAM variable = bitmap_words depth = 2
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(send_keys, keys, n, groups);
  DATAFLOW_STAGE(use_keys, groups, n, k, pass, before, histograms, chosen, after);
  DATAFLOW_STAGE(pack_bitmap, chosen, emitted, bitmap_words);
  DATAFLOW_STAGE(keep_words, bitmap_words, words, bitmap);
  DATAFLOW_END
}

// Bitmap of the k largest of n keys; all keys are finite.
inline void choose(int n, int k, GroupMemory& keys, MaskMemory& bitmap) {
#pragma HLS INLINE
  lane_count_t histograms[kGroupKeys][kBins];
#pragma HLS ARRAY_PARTITION variable = histograms dim = 1 complete
#pragma HLS BIND_STORAGE variable = histograms type = ram_s2p impl = bram
  int pass = first_pass(k);
  if (pass != kInsertionPass) clear_histograms(histograms);
  Cut cut;
  cut.ties = k;
  bool emitted = false;
choice_passes:
  while (!emitted) {
    const Cut before = cut;
    run_choice_pass(pass, n, k, keys, before, histograms, cut, bitmap);
    emitted = pass == kEmitPass;
    pass = next_pass(pass, kDigits, cut);
  }
}

}  // namespace kvdrive::attention
