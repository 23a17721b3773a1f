// SPDX-License-Identifier: Apache-2.0
// What a choice reads: the index through one port at a beat a cycle, everything small through another one.
#pragma once

#include "attention/fetch.hpp"
#include "group_choice/job.hpp"

namespace kvdrive {
namespace group_choice {

inline void fetch_index(const beat_t* index, Job job, Stream<beat_t>& beats) {
  read_beats(index + job.rows.k, job.rows.k_beats, beats);
}

// A span is a beat of ranges (lo, then step) for every 32 channels, then four of codes.
inline void split_spans(Stream<beat_t>& beats, Job job, Stream<beat_t>& ranges, Stream<beat_t>& codes) {
  ap_uint<6> place = 0;
split_spans:
  for (int i = 0; i < job.rows.k_beats; ++i) {
#pragma HLS PIPELINE II = 1
    const beat_t beat = beats.read();
    if (place < job.rows.row_beats) {
      ranges.write(beat);
    } else {
      codes.write(beat);
    }
    place = place == 5 * job.rows.row_beats - 1 ? ap_uint<6>(0) : ap_uint<6>(place + 1);
  }
}

// The query heads; the inline scores, 16 tokens of every head at a time; the mask.
template <int G>
void fetch_operands(const beat_t* io, Job job, Stream<beat_t>& queries, Stream<beat_t>& inline_scores,
                    Stream<beat_t>& masks) {
  attention::fetch_query<G>(io, job.rows, queries);
  const int inline_beats = (job.rows.inline_tokens + attention::kScoresPerBeat - 1) / attention::kScoresPerBeat;
fetch_inline:
  for (int block = 0; block < inline_beats; ++block) {
  fetch_inline_heads:
    for (int h = 0; h < G; ++h) {
#pragma HLS PIPELINE II = 1
      inline_scores.write(io[job.rows.inline_scores + h * inline_beats + block]);
    }
  }
  attention::fetch_masks(io, job.rows, masks);
}

}  // namespace group_choice
}  // namespace kvdrive
