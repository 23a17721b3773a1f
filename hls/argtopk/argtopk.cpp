// SPDX-License-Identifier: Apache-2.0
// Top of argtopk. The keys are read once per pass: radix digits or insertion first, then the pass that emits.
#include "argtopk/argtopk.hpp"

#include "argtopk/pass.hpp"
#include "common/dataflow.hpp"
#include "common/memory.hpp"

namespace kvdrive {
namespace {

int check(int n, int k) {
#pragma HLS INLINE
  const int most = n < abi::kMaxTopK ? n : abi::kMaxTopK;
  int status = 0;
  if (n < 1 || n > abi::kMaxTokens) status |= abi::kBadLength;
  if (k < 1 || k > most) status |= abi::kBadK;
  return status;
}

int key_beats_of(int n, int key_type) {
#pragma HLS INLINE
  return key_type == abi::kMagnitude16 ? (n + 31) / 32 : (n + 15) / 16;
}

int index_beats_of(int k) {
#pragma HLS INLINE
  return (k + kIndicesPerBeat - 1) / kIndicesPerBeat;
}

void fork_masks(Stream<mask_t>& masks, int n, Stream<mask_t>& to_bitmap, Stream<mask_t>& to_indices) {
fork:
  for (int first = 0; first < n; first += kGroupKeys) {
#pragma HLS PIPELINE II = 1
    const mask_t mask = masks.read();
    to_bitmap.write(mask);
    to_indices.write(mask);
  }
}

void run_pass(const beat_t* keys, beat_t* indices, beat_t* bitmap, int n, int k, int key_type, int pass,
              const Cut& before, Histograms& histograms, Cut& after) {
#pragma HLS DATAFLOW
  const int key_beats_read = key_beats_of(n, key_type);
  const int emitted = pass == kEmitPass ? n : 0;
  const int words = bitmap_words(emitted);
  const int index_beats_written = pass == kEmitPass && before.finite ? index_beats_of(k) : 0;
  DATAFLOW_FIFO(16, key_beats, beat_t);
  DATAFLOW_FIFO(4, groups, group_t);
  DATAFLOW_FIFO(4, masks, mask_t);
  DATAFLOW_FIFO(4, bitmap_masks, mask_t);
  DATAFLOW_FIFO(4, index_masks, mask_t);
  DATAFLOW_FIFO(16, bitmap_beats, beat_t);
  DATAFLOW_FIFO(16, index_beats, beat_t);
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(read_beats, keys, key_beats_read, key_beats);
  DATAFLOW_STAGE(order_keys, key_beats, n, key_type, groups);
  DATAFLOW_STAGE(use_keys, groups, n, k, pass, before, histograms, masks, after);
  DATAFLOW_STAGE(fork_masks, masks, emitted, bitmap_masks, index_masks);
  DATAFLOW_STAGE(pack_bitmap, bitmap_masks, emitted, bitmap_beats);
  DATAFLOW_STAGE(pack_indices, index_masks, emitted, index_beats);
  DATAFLOW_STAGE(write_beats, bitmap_beats, words, bitmap);
  DATAFLOW_STAGE(write_beats, index_beats, index_beats_written, indices);
  DATAFLOW_END
}

}  // namespace

int argtopk(const beat_t* keys, beat_t* indices, beat_t* bitmap, int n, int k, int key_type) {
#pragma HLS INTERFACE mode = m_axi port = keys bundle = gmem0 offset = slave max_read_burst_length = 64
#pragma HLS INTERFACE mode = m_axi port = indices bundle = gmem1 offset = slave max_write_burst_length = 16
#pragma HLS INTERFACE mode = m_axi port = bitmap bundle = gmem2 offset = slave max_write_burst_length = 16
#pragma HLS INTERFACE mode = s_axilite port = n
#pragma HLS INTERFACE mode = s_axilite port = k
#pragma HLS INTERFACE mode = s_axilite port = key_type
#pragma HLS INTERFACE mode = s_axilite port = return
  Histograms histograms;
#pragma HLS ARRAY_PARTITION variable = histograms dim = 1 complete
#pragma HLS ARRAY_PARTITION variable = histograms dim = 2 complete
#pragma HLS BIND_STORAGE variable = histograms type = ram_s2p impl = bram
  const int status = check(n, k);
  if (status != 0) return status;
  const int digits = key_type == abi::kMagnitude16 ? kMagnitudeDigits : kDigits;
  int pass = first_pass(n, k);
  if (pass != kInsertionPass) clear_histograms(histograms);
  Cut cut;
  cut.ties = k;
  bool emitted = false;
passes:
  while (!emitted) {
    const Cut before = pass == kEmitPass && !cut.finite ? empty_cut() : cut;
    run_pass(keys, indices, bitmap, n, k, key_type, pass, before, histograms, cut);
    emitted = pass == kEmitPass;
    pass = next_pass(pass, digits, cut);
  }
  return cut.finite ? 0 : int(abi::kNonFinite);
}

}  // namespace kvdrive
