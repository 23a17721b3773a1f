// SPDX-License-Identifier: Apache-2.0
// group_choice: which units of tokens policy groups reads, from the 2-bit index of K (docs/arithmetic.md,
// docs/jobs.md).
//
// Reads a GroupChoiceJob, q, the index, optionally a mask and inline scores; writes the bitmap of the chosen units and
// a GroupChoiceResult. Returns a status word; nothing is written if a check fails. d = 32, 64, 128 or 256. Rate: the
// index at a beat a cycle for d >= 128, 18 cycles per span of 32 tokens below. Then four tokens a cycle for their
// probabilities, and a cycle for each unit to make its key and another one to mark it.
#pragma once

#include "attention/streams.hpp"
#include "common/dataflow.hpp"
#include "group_choice/choose.hpp"
#include "group_choice/fetch.hpp"

namespace kvdrive {
namespace group_choice {

template <int G>
void score_index(const beat_t* index, const beat_t* io, Job job, ScoreMemory (&scores)[G], MaskMemory& masks,
                 status_t& status, score_t largest[G]) {
#pragma HLS DATAFLOW
  DATAFLOW_FIFO(16, beats, beat_t);
  DATAFLOW_FIFO(4, ranges, beat_t);
  // The weights of a span come from beats behind the codes of the two spans before it.
  DATAFLOW_FIFO(128, codes, beat_t);
  OPERAND_STREAMS(G);
  DATAFLOW_FIFO(2, shifts, shifts_t);
  DATAFLOW_FIFO(4, weights, weights_t<G>);
  DATAFLOW_FIFO(4, bases, heads_t<G>);
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(fetch_index, index, job, beats);
  DATAFLOW_STAGE(split_spans, beats, job, ranges, codes);
  DATAFLOW_STAGE(fetch_operands<G>, io, job, query_beats, inline_beats, mask_words);
  DATAFLOW_STAGE((attention::order_inline_scores<G, false>), inline_beats, job.rows, inline_scores);
  DATAFLOW_STAGE(weigh_channels<G>, query_beats, ranges, job, shifts, weights, bases);
  DATAFLOW_STAGE(score_spans<G>, shifts, weights, bases, codes, inline_scores, mask_words, job, scores, masks, status,
                 largest);
  DATAFLOW_END
}

// The fields of all heads; those of heads that the group does not have are zero.
template <int G>
void store_record(const Job& job, status_t status, const max_t max[G], const sum_t sum[G], const sum_t unread[G],
                  beat_t* out) {
#pragma HLS INLINE
  namespace at = abi::groupchoiceresult_bit;
  static_assert(at::kSum == abi::kBeatBits && at::kUnread == 2 * abi::kBeatBits, "a beat for each of the sums");
  beat_t beats[3] = {0, 0, 0};
  set_lane<32>(beats[0], at::kStatus / 32, status);
  set_lane<32>(beats[0], at::kSelected / 32, status == 0 ? ap_uint<32>(job.k_top) : ap_uint<32>(0));
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    set_lane<32>(beats[0], at::kMax / 32 + h, status == 0 ? ap_uint<32>(score_t(max[h])) : ap_uint<32>(0));
    set_lane<64>(beats[1], h, status == 0 ? ap_uint<64>(sum[h]) : ap_uint<64>(0));
    set_lane<64>(beats[2], h, status == 0 ? ap_uint<64>(unread[h]) : ap_uint<64>(0));
  }
  attention::store_block(beats, 3, job.rows.result, out);
}

template <int G>
status_t group_choice(const beat_t* index, const beat_t* io, beat_t* out, ap_uint<64> address,
                      ap_uint<64> memory_beats) {
#pragma HLS INLINE
  Job job;
  status_t status = open_job(io, address, memory_beats, G, job);
  if (status != 0) return status;
  ScoreMemory scores[G];
#pragma HLS ARRAY_RESHAPE variable = scores complete dim = 1
#pragma HLS ARRAY_PARTITION variable = scores complete dim = 2
#pragma HLS BIND_STORAGE variable = scores type = ram_s2p impl = uram
  MaskMemory masks;
  MassMemory masses[G];
#pragma HLS ARRAY_RESHAPE variable = masses complete dim = 1
#pragma HLS BIND_STORAGE variable = masses type = ram_s2p impl = uram
  KeyMemory keys;
  beat_t marks[kMarkBeats];
  score_t largest[G];
#pragma HLS ARRAY_PARTITION variable = largest complete
  max_t max[G];
#pragma HLS ARRAY_PARTITION variable = max complete
  sum_t sum[G];
#pragma HLS ARRAY_PARTITION variable = sum complete
  sum_t unread[G];
#pragma HLS ARRAY_PARTITION variable = unread complete
  weight_t weights[G];
#pragma HLS ARRAY_PARTITION variable = weights complete
  score_index<G>(index, io, job, scores, masks, status, largest);
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    max[h] = ceil_score(largest[h]);
    sum[h] = 0;
    unread[h] = 0;
  }
  if (status == 0) {
    sum_units<G>(job, scores, masks, max, masses, sum);
    weigh_sums<G>(sum, weights);
    make_keys<G>(job, masses, weights, keys);
    const Cut cut = cut_keys(job, keys);
    mark_units<G>(job, keys, cut, masses, marks, unread);
  } else {
    mark_nothing(marks);
  }
  attention::store_block(marks, bitmap_words(job.units), job.rows.out, out);
  store_record<G>(job, status, max, sum, unread, out);
  return status;
}

}  // namespace group_choice
}  // namespace kvdrive
