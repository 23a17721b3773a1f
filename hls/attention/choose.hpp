// SPDX-License-Identifier: Apache-2.0
// The choice of SparF: the passes of argtopk over keys that are made on chip, into a bitmap that stays on chip.
#pragma once

#include "argtopk/pass.hpp"
#include "attention/keys.hpp"
#include "common/dataflow.hpp"

namespace kvdrive::attention {

inline void keep_words(Stream<beat_t>& words, int count, MaskMemory& bitmap) {
keep:
  for (int i = 0; i < count; ++i) {
#pragma HLS PIPELINE II = 1
    bitmap[i] = words.read();
  }
}

template <int G>
void run_choice_pass(int pass, bool first_pass, Job job, int k, const beat_t queries[G][kMaxChunks],
                     ScoreMemory (&scores)[G], const MaskMemory& masks, const max_t max[G], const weight_t weights[G],
                     GroupMemory& kept, Cut before, Histograms& histograms, Cut& after, MaskMemory& bitmap) {
#pragma HLS DATAFLOW
  const int n = keys_of(job);
  const int emitted = pass == kEmitPass ? n : 0;
  const int words = bitmap_words(emitted);
  Fifo<group_t, 4> groups("choice_groups");
#pragma HLS STREAM variable = groups depth = 4
  Fifo<mask_t, 4> chosen("choice_masks");
#pragma HLS STREAM variable = chosen depth = 4
  Fifo<beat_t, 2> bitmap_words("choice_words");
#pragma HLS STREAM variable = bitmap_words depth = 2
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(feed_groups<G>, first_pass, job, queries, scores, masks, max, weights, kept, groups);
  DATAFLOW_STAGE(use_keys, groups, n, k, pass, before, histograms, chosen, after);
  DATAFLOW_STAGE(pack_bitmap, chosen, emitted, bitmap_words);
  DATAFLOW_STAGE(keep_words, bitmap_words, words, bitmap);
  DATAFLOW_END
}

// Bitmap of the k largest keys; all keys are finite.
template <int G>
void choose(Job job, int k, const beat_t queries[G][kMaxChunks], ScoreMemory (&scores)[G], const MaskMemory& masks,
            const max_t max[G], const weight_t weights[G], MaskMemory& bitmap) {
#pragma HLS INLINE off
  GroupMemory kept;
  lane_count_t histograms[kGroupKeys][kBins];
#pragma HLS ARRAY_PARTITION variable = histograms dim = 1 complete
#pragma HLS BIND_STORAGE variable = histograms type = ram_s2p impl = bram
  const bool insertion = k <= abi::kInsertionK;
  const int selects = insertion ? 1 : kDigits;
  if (!insertion) clear_histograms(histograms);
  Cut cut;
  cut.ties = k;
choice_passes:
  for (int i = 0; i <= selects; ++i) {
    const int pass = i == selects ? kEmitPass : insertion ? kInsertionPass : i;
    const Cut before = cut;
    run_choice_pass<G>(pass, i == 0, job, k, queries, scores, masks, max, weights, kept, before, histograms, cut,
                       bitmap);
  }
}

}  // namespace kvdrive::attention
