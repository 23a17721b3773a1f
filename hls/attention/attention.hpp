// SPDX-License-Identifier: Apache-2.0
// attention: one KV head and its G query heads, in the five modes of docs/jobs.md, from a descriptor in memory.
//
// Rate: one 512-bit beat of K or V a cycle, so 8 cycles a token at head dimension 128, whatever G. Results are those of
// docs/arithmetic.md, bit by bit. `kv`, `io` and `out` are three ports to one memory of `memory_beats` beats; `job` is
// the byte address of the descriptor. Returns the status word. A descriptor that fails a check touches nothing.
#pragma once

#include "attention/core.hpp"
#include "attention/fetch.hpp"
#include "attention/open.hpp"
#include "attention/output.hpp"
#include "attention/queries.hpp"
#include "attention/sparf.hpp"
#include "attention/streams.hpp"

namespace kvdrive {
namespace attention {

// Reads and checks what SPARF_TOKENS takes over from SPARF_ROWS.
template <int G>
status_t check_choice(const beat_t* io, const SparfJob& job, const Record& record, beat_t& rows) {
#pragma HLS INLINE
  beat_t block[1];
  load_block(io, job.rows, block);
  rows = block[0];
  ap_uint<9> chosen = 0;
count_rows:
  for (int i = 0; i < job.head_dim; ++i) {
#pragma HLS PIPELINE II = 1
    if (bit_at(rows, i)) ++chosen;
  }
  status_t status = 0;
  if (chosen != job.r) status |= abi::kBadR;
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    if (!is_finite_single(scale_of(record, h))) status |= abi::kBadScale;
  }
  return status;
}

// Scores, softmax and, but for SPARF_TOKENS, the outputs.
template <int G>
void attend(const beat_t* kv, const beat_t* io, beat_t* out, SparfJob job, Record record, beat_t rows,
            ScoreMemory (&scores)[G], MaskMemory& masks, status_t& status, max_t max[G], sum_t sum[G]) {
#pragma HLS DATAFLOW
  const Squares squares = squares_of(job);
  DATAFLOW_FIFO(128, fetched, beat_t);
  DATAFLOW_FIFO(4, beats, beat_t);
  DATAFLOW_FIFO(4, queries, beat_t);
  OPERAND_STREAMS(G);
  RESULT_STREAMS(G);
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(fetch_rows, kv, job, fetched);
  DATAFLOW_STAGE(transpose_blocks, fetched, squares, beats);
  DATAFLOW_STAGE(fetch_operands<G>, io, job, query_beats, inline_beats, mask_words, v_sums);
  DATAFLOW_STAGE(choose_queries<G>, query_beats, job, rows, queries);
  DATAFLOW_STAGE(order_inline_scores<G>, inline_beats, job, inline_scores);
  DATAFLOW_STAGE(core<G>, beats, queries, inline_scores, mask_words, job, record, scores, masks, totals, accs);
  DATAFLOW_STAGE(divide_sums<G>, totals, accs, v_sums, job, record, status, max, sum, values);
  DATAFLOW_STAGE(pack_rows<G>, values, job, rows_out);
  DATAFLOW_STAGE(store_rows<G>, rows_out, job, out);
  DATAFLOW_END
}

// Scales of the heads for the chosen rows; nothing is chosen in a failed job.
template <int G>
void finish_rows(const SparfJob& job, status_t status, const beat_t queries[G][kMaxChunks], MaskMemory& bitmap,
                 Record& record) {
#pragma HLS INLINE
  single_t scale[G];
#pragma HLS ARRAY_PARTITION variable = scale complete
  if (status == 0) {
    scale_heads<G>(job, queries, bitmap[0], scale);
  } else {
    bitmap[0] = 0;
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      scale[h] = 0;
    }
  }
  set_selected(record, status == 0 ? ap_uint<32>(job.r) : ap_uint<32>(0));
  set_scales<G>(record, scale);
}

// Shares of the heads in the chosen tokens; nothing is chosen in a failed job.
template <int G>
void finish_tokens(const SparfJob& job, status_t status, const sum_t sum[G], const sum_t chosen_sum[G], int selected,
                   MaskMemory& bitmap, Record& record) {
#pragma HLS INLINE
  single_t alpha[G];
#pragma HLS ARRAY_PARTITION variable = alpha complete
  if (status != 0) {
  clear_bitmap:
    for (int i = 0; i < mask_beats(job); ++i) {
#pragma HLS PIPELINE II = 1
      bitmap[i] = 0;
    }
  }
shares:
  for (int h = 0; h < job.heads; ++h) {
#pragma HLS PIPELINE II = 1
    single_t share = 0;
    if (status == 0) share = ratio_to_single(acc_t(pick<G>(chosen_sum, h)) << 24, pick<G>(sum, h));
    put<G>(alpha, h, share);
  }
  set_selected(record, status == 0 ? ap_uint<32>(selected) : ap_uint<32>(0));
  set_alphas<G>(record, alpha);
}

template <int G>
status_t attention(const beat_t* kv, const beat_t* io, beat_t* out, ap_uint<64> address, ap_uint<64> memory_beats) {
#pragma HLS INLINE
  SparfJob job;
  status_t status = open_job<G>(io, address, memory_beats, job);
  if (status != 0) return status;
  const bool for_rows = chooses_rows(job);
  const bool for_tokens = chooses_tokens(job);
  Record record = job.mode == abi::kExact || is_partial(job) ? no_record() : load_record(io, job);
  beat_t rows = 0;
  if (for_tokens) status = check_choice<G>(io, job, record, rows);
  if (status != 0) return status;

  ScoreMemory scores[G];
#pragma HLS ARRAY_RESHAPE variable = scores complete dim = 1
#pragma HLS ARRAY_PARTITION variable = scores complete dim = 2
#pragma HLS BIND_STORAGE variable = scores type = ram_s2p impl = uram
  MaskMemory masks;
  MaskMemory bitmap;
  beat_t queries[G][kMaxChunks];
#pragma HLS ARRAY_PARTITION variable = queries complete dim = 1
  max_t max[G];
#pragma HLS ARRAY_PARTITION variable = max complete
  sum_t sum[G];
#pragma HLS ARRAY_PARTITION variable = sum complete
  sum_t chosen_sum[G];
#pragma HLS ARRAY_PARTITION variable = chosen_sum complete
  int selected = 0;

  if (for_rows) {
    fetch_queries<G>(io, job, queries, status);
  } else {
    attend<G>(kv, io, out, job, record, rows, scores, masks, status, max, sum);
  }
  if ((for_rows || for_tokens) && status == 0) {
    walk_and_choose<G>(job, queries, scores, masks, max, sum, chosen_sum, bitmap, selected);
  }
  if (!for_rows) set_totals<G>(record, max, sum);
  if (for_rows) finish_rows<G>(job, status, queries, bitmap, record);
  if (for_tokens) finish_tokens<G>(job, status, sum, chosen_sum, selected, bitmap, record);
  if (for_rows || for_tokens) {
    store_block(bitmap, for_rows ? 1 : mask_beats(job), for_rows ? job.rows : job.out, out);
  }
  set_status(record, status);
  store_record(record, job, out);
  return status;
}

}  // namespace attention
}  // namespace kvdrive
