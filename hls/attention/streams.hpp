// SPDX-License-Identifier: Apache-2.0
// The streams between the stages that the tops of attention and of group_choice share.
#pragma once

#include "attention/heads.hpp"
#include "common/dataflow.hpp"

// From fetch_operands and order_inline_scores. G: query heads.
#define OPERAND_STREAMS(G)                     \
  DATAFLOW_FIFO(16, query_beats, beat_t);      \
  DATAFLOW_FIFO(16, inline_beats, beat_t);     \
  DATAFLOW_FIFO(4, inline_scores, heads_t<G>); \
  DATAFLOW_FIFO(4, mask_words, beat_t)

// The sum of V, and what core, divide_sums and pack_rows hand on. HEADS: sums, one for each part of a head.
#define RESULT_STREAMS(HEADS)               \
  DATAFLOW_FIFO(8, v_sums, beat_t);         \
  DATAFLOW_FIFO(4, totals, ap_uint<64>);    \
  DATAFLOW_FIFO(4, accs, accs_t<HEADS>);    \
  DATAFLOW_FIFO(4, values, heads_t<HEADS>); \
  DATAFLOW_FIFO(16, rows_out, beat_t)
