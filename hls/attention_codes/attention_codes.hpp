// SPDX-License-Identifier: Apache-2.0
// attention_codes: EXACT and PARTIAL jobs of one KV head and its G query heads over K and V in kBits bits, 8 or 4, from
// a descriptor in memory (docs/jobs.md, Codes in 8 and 4 bits).
//
// Rate: one 512-bit beat of codes a cycle, so 4 or 2 cycles a token at head dimension 128, whatever G. Two rows of 64
// codes of 4 bits share a beat and take a cycle each. Every code stands for a binary16 number, and the results are
// those of attention_exact over these numbers, bit by bit. `kv`, `steps`, `io` and `out` are four ports to one memory
// of `memory_beats` beats; `job` is the byte address of the descriptor. Returns the status word. A descriptor that
// fails a check touches nothing.
#pragma once

#include "attention/fetch.hpp"
#include "attention/output.hpp"
#include "attention/streams.hpp"
#include "attention_codes/core.hpp"
#include "common/dataflow.hpp"

namespace kvdrive {
namespace attention_codes {

// The step bytes of K, then those of V.
template <int kBits>
void fetch_steps(const beat_t* memory, ExactJob job, Stream<beat_t>& steps) {
fetch_step_arrays:
  for (int array = 0; array < 2; ++array) {
    read_beats(memory + (array == 0 ? k_steps(job) : v_steps(job)), step_beats<kBits>(job), steps);
  }
}

// attention::divide_sums for parts, of which there may be more than the heads that a record has fields for. These modes
// blend nothing: neither a record nor a sum of V is read, and the stream of such sums stays empty.
template <int kHeads>
void divide_sums(Stream<ap_uint<64>>& totals, Stream<accs_t<kHeads>>& accs, Stream<beat_t>& /*v_sums*/, ExactJob job,
                 status_t& status, max_t max[kHeads], sum_t sum[kHeads], Stream<heads_t<kHeads>>& values) {
  const status_t flags = totals.read();
take_totals:
  for (int h = 0; h < kHeads; ++h) {
#pragma HLS UNROLL
    const ap_uint<64> word = totals.read();
    max[h] = flags == 0 ? attention::max_of(word) : max_t(0);
    sum[h] = flags == 0 ? attention::sum_of(word) : sum_t(0);
  }
  status = flags;
divide:
  for (int j = 0; j < job.head_dim; ++j) {
#pragma HLS PIPELINE II = 1
    const accs_t<kHeads> word = accs.read();
    heads_t<kHeads> results = 0;
    for (int h = 0; h < kHeads; ++h) {
#pragma HLS UNROLL
      const single_t value = attention::divide_sum(job, attention::acc_of<kHeads>(word, h), sum[h], 0, 0);
      set_lane<32>(results, h, flags == 0 ? value : single_t(0));
    }
    values.write(results);
  }
}

// The rows of all parts. If a token has `half` of the parts of a beat, those of the other half are dropped.
template <int G, int kParts>
void store_rows(Stream<beat_t>& rows, ExactJob job, bool half, beat_t* out) {
  if (!half) {
    attention::store_rows<G * kParts>(rows, job, out);
    return;
  }
  const int part_beats = attention::is_partial(job) ? int(2 * job.row_beats) : int(job.row_beats);
  const int row_beats = kParts / 2 * part_beats;
store_heads:
  for (int head = 0; head < G; ++head) {
    write_beats(rows, row_beats, out + job.out + head * row_beats);
  drop_rows:
    for (int i = 0; i < row_beats; ++i) {
#pragma HLS PIPELINE II = 1
      rows.read();
    }
  }
}

template <int G, int kBits>
void attend(const beat_t* kv, const beat_t* step_memory, const beat_t* io, beat_t* out, ExactJob job,
            ScoreMemory (&scores)[G], MaskMemory& masks, status_t& status, max_t max[G * Format<kBits>::kParts],
            sum_t sum[G * Format<kBits>::kParts]) {
#pragma HLS DATAFLOW
  constexpr int kHeads = G * Format<kBits>::kParts;  // behind the multipliers, each part of a head is a head
  const ExactJob part_job = of_parts<kBits>(job);
  DATAFLOW_FIFO(56, beats, beat_t);
  DATAFLOW_FIFO(16, steps, beat_t);
  OPERAND_STREAMS(G);
  RESULT_STREAMS(kHeads);
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(attention::fetch_rows, kv, job, beats);
  DATAFLOW_STAGE(fetch_steps<kBits>, step_memory, job, steps);
  DATAFLOW_STAGE(attention::fetch_operands<G>, io, job, query_beats, inline_beats, mask_words, v_sums);
  DATAFLOW_STAGE(attention::order_inline_scores<G>, inline_beats, job, inline_scores);
  DATAFLOW_STAGE((core<G, kBits>), beats, query_beats, inline_scores, mask_words, steps, job, scores, masks, totals,
                 accs);
  DATAFLOW_STAGE(divide_sums<kHeads>, totals, accs, v_sums, part_job, status, max, sum, values);
  DATAFLOW_STAGE(attention::pack_rows<kHeads>, values, part_job, rows_out);
  DATAFLOW_STAGE((store_rows<G, Format<kBits>::kParts>), rows_out, part_job, half_beats<kBits>(job), out);
  DATAFLOW_END
}

template <int G, int kBits>
status_t attention_codes(const beat_t* kv, const beat_t* step_memory, const beat_t* io, beat_t* out,
                         ap_uint<64> address, ap_uint<64> memory_beats) {
#pragma HLS INLINE
  constexpr int kParts = Format<kBits>::kParts;
  ExactJob job;
  status_t status = open_codes<G, kBits>(io, address, memory_beats, job);
  if (status != 0) return status;
  ScoreMemory scores[G];
#pragma HLS ARRAY_RESHAPE variable = scores complete dim = 1
#pragma HLS ARRAY_PARTITION variable = scores complete dim = 2
#pragma HLS BIND_STORAGE variable = scores type = ram_s2p impl = uram
  MaskMemory masks;
  max_t part_max[G * kParts];
#pragma HLS ARRAY_PARTITION variable = part_max complete
  sum_t part_sum[G * kParts];
#pragma HLS ARRAY_PARTITION variable = part_sum complete
  attend<G, kBits>(kv, step_memory, io, out, job, scores, masks, status, part_max, part_sum);
  max_t max[G];
#pragma HLS ARRAY_PARTITION variable = max complete
  sum_t sum[G];
#pragma HLS ARRAY_PARTITION variable = sum complete
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    max[h] = part_max[h * kParts];
    sum[h] = part_sum[h * kParts];
  }
  attention::Record record = attention::no_record();
  attention::set_totals<G>(record, max, sum);
  attention::set_status(record, status);
  attention::store_record(record, job, out);
  return status;
}

}  // namespace attention_codes
}  // namespace kvdrive
