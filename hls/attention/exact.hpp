// SPDX-License-Identifier: Apache-2.0
// The engine without SparF: EXACT and PARTIAL jobs only, other modes are refused with kBadMode. It does what
// attention.hpp does with these jobs, bit by bit and at the same rate, from the same stages, and leaves out what only
// SparF needs: the transposer, the choice of dimensions and tokens, and the blending with the mean of V.
#pragma once

#include "attention/core.hpp"
#include "attention/fetch.hpp"
#include "attention/open.hpp"
#include "attention/output.hpp"
#include "attention/streams.hpp"

namespace kvdrive {
namespace attention {

template <int G>
void attend_exactly(const beat_t* kv, const beat_t* io, beat_t* out, ExactJob job, ScoreMemory (&scores)[G],
                    MaskMemory& masks, status_t& status, max_t max[G], sum_t sum[G]) {
#pragma HLS DATAFLOW
  const Record record = no_record();
  DATAFLOW_FIFO(56, beats, beat_t);
  OPERAND_STREAMS(G);
  RESULT_STREAMS(G);
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(fetch_rows, kv, job, beats);
  DATAFLOW_STAGE(fetch_operands<G>, io, job, query_beats, inline_beats, mask_words, v_sums);
  DATAFLOW_STAGE(order_inline_scores<G>, inline_beats, job, inline_scores);
  DATAFLOW_STAGE(core<G>, beats, query_beats, inline_scores, mask_words, job, record, scores, masks, totals, accs);
  DATAFLOW_STAGE(divide_sums<G>, totals, accs, v_sums, job, record, status, max, sum, values);
  DATAFLOW_STAGE(pack_rows<G>, values, job, rows_out);
  DATAFLOW_STAGE(store_rows<G>, rows_out, job, out);
  DATAFLOW_END
}

template <int G>
status_t exact_attention(const beat_t* kv, const beat_t* io, beat_t* out, ap_uint<64> address,
                         ap_uint<64> memory_beats) {
#pragma HLS INLINE
  ExactJob job;
  status_t status = open_job<G>(io, address, memory_beats, job);
  if (status != 0) return status;
  ScoreMemory scores[G];
#pragma HLS ARRAY_RESHAPE variable = scores complete dim = 1
#pragma HLS ARRAY_PARTITION variable = scores complete dim = 2
#pragma HLS BIND_STORAGE variable = scores type = ram_s2p impl = uram
  MaskMemory masks;
  max_t max[G];
#pragma HLS ARRAY_PARTITION variable = max complete
  sum_t sum[G];
#pragma HLS ARRAY_PARTITION variable = sum complete
  attend_exactly<G>(kv, io, out, job, scores, masks, status, max, sum);
  Record record = no_record();
  set_totals<G>(record, max, sum);
  set_status(record, status);
  store_record(record, job, out);
  return status;
}

}  // namespace attention
}  // namespace kvdrive
