// SPDX-License-Identifier: Apache-2.0
// Top of softmax: two passes over one buffer, one after the other.
#include "softmax/softmax.hpp"

namespace kvdrive {

int softmax(Stream<score_t>& dense_scores, Stream<beat_t>& valid, Stream<score_t>& tail_scores, Stream<prob_t>& p,
            int dense, int tail, int masked, int& max, ap_uint<64>& sum) {
#pragma HLS INTERFACE mode = axis port = dense_scores
#pragma HLS INTERFACE mode = axis port = valid
#pragma HLS INTERFACE mode = axis port = tail_scores
#pragma HLS INTERFACE mode = axis port = p
#pragma HLS INTERFACE mode = s_axilite port = dense
#pragma HLS INTERFACE mode = s_axilite port = tail
#pragma HLS INTERFACE mode = s_axilite port = masked
#pragma HLS INTERFACE mode = s_axilite port = max
#pragma HLS INTERFACE mode = s_axilite port = sum
#pragma HLS INTERFACE mode = s_axilite port = return
  entry_pair_t entries[kEntryPairs];
#pragma HLS BIND_STORAGE variable = entries type = ram_s2p impl = uram
  max = 0;
  sum = 0;
  const bool lengths_fit = dense >= 0 && dense <= kMaxScores && tail >= 0 && tail <= kMaxScores;
  if (!lengths_fit || dense + tail < 1 || dense + tail > kMaxScores) return abi::kBadLength;
  const Peak peak = collect_scores(dense_scores, valid, tail_scores, dense, tail, masked != 0, entries);
  const max_t top = peak.any ? ceil_score(peak.score) : max_t(0);
  sum = emit_probabilities(entries, dense + tail, top, p);
  max = top;
  return peak.any ? 0 : static_cast<int>(abi::kEmpty);
}

}  // namespace kvdrive
