// SPDX-License-Identifier: Apache-2.0
// gemv: products of a KV block with the operands of kGroup query heads that share it. One 512-bit beat a cycle; each
// head has 32 multipliers, which serve all three modes. Exact sums; a dot product is rounded once, to binary32.
//
//   mode         beats                                    operands                          results
//   kRows        K [tokens][d/32]                         q [kGroup][d/32]                  dots, a beat per token
//   kColumns     K [ceil(tokens/32)][r], a beat per row   q [kGroup][ceil(r/32)], 0-padded  dots, a beat per token
//   kAccumulate  V [tokens][d/32]                         p, a beat per token               acc [d/32][kGroup][8]
//
// Beats of dots and of p carry head h in 32-bit lane h; the spare lanes are zero on the way out. p has LSB 2^-31, is at
// most 2^31 and has 20 significant bits. acc has LSB 2^-55, 128 bits, four to a beat. `width` is d or r.
// Returns a status word. With BAD_MODE, BAD_HEAD_DIM, BAD_R or BAD_LENGTH no stream is touched; after NON_FINITE (in q,
// K or V; lanes beyond `tokens` may hold anything) results have come out in full but mean nothing. Cycles: number of
// beats, 31 more for kColumns, and for kAccumulate the results.
#pragma once

#include "common/dataflow.hpp"
#include "gemv/accumulators.hpp"
#include "gemv/multiply.hpp"
#include "gemv/plan.hpp"
#include "gemv/transpose.hpp"

namespace kvdrive {

// The multipliers, and behind them adder trees or accumulators.
template <int kGroup>
void multiply_beats(Stream<beat_t>& operands, Stream<beat_t>& beats, const GemvPlan& plan, Stream<beat_t>& results,
                    bool& finite) {
  HalfParts query[kGroup][abi::kLanes][kMaxChunks];
#pragma HLS ARRAY_PARTITION variable = query complete dim = 1
#pragma HLS ARRAY_PARTITION variable = query complete dim = 2
  AccSum sums[kGroup][abi::kLanes][kAccSlots];
#pragma HLS ARRAY_PARTITION variable = sums complete dim = 1
#pragma HLS ARRAY_PARTITION variable = sums complete dim = 2
#pragma HLS BIND_STORAGE variable = sums type = ram_2p impl = lutram
  // Dot products in the making: of the token at work, or of the 32 tokens of a block.
  DotSum row[kGroup];
#pragma HLS ARRAY_PARTITION variable = row complete
  DotSum block[kGroup][abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = block complete dim = 1
  Probability p[kGroup];
#pragma HLS ARRAY_PARTITION variable = p complete
  const bool accumulating = plan.mode == GemvMode::kAccumulate;
  const bool in_blocks = plan.mode == GemvMode::kColumns;
  const int last_slot = acc_slots(plan.chunks) - 1;
  bool clean = true;
  if (accumulating) {
    clear_accumulators<kGroup>(sums);
  } else {
    clean = load_query<kGroup>(operands, plan.chunks, query);
  }
  GemvPosition at;
  int slot = 0;
multiply_add:
  for (int i = 0; i < plan.beats; ++i) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = sums type = inter direction = RAW distance = 5 dependent = true
#pragma HLS DEPENDENCE variable = block type = inter direction = RAW distance = 32 dependent = true
    const beat_t beat = beats.read();
    beat_t weights = 0;
    if (accumulating && at.chunk == 0) weights = operands.read();
    const bool within = at.block + at.inner < plan.tokens;
    const bool first = at.chunk == 0;
    const bool last = at.chunk == plan.chunks - 1;
    HalfParts parts[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = parts complete
    const bool beat_clean = unpack_lanes(beat, parts);
    clean = clean && (beat_clean || !within);
    beat_t dots = 0;
    for (int h = 0; h < kGroup; ++h) {
#pragma HLS UNROLL
      if (accumulating && first) p[h] = to_probability(single_lane(weights, h));
      Term terms[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = terms complete
      multiply_lanes(accumulating, p[h], query[h], at.chunk, parts, terms);
      if (accumulating) {
        add_terms(terms, slot, sums[h]);
      } else {
        const DotSum before = first ? zero_dot() : in_blocks ? block[h][at.inner] : row[h];
        row[h] = add(before, sum_terms(terms));
        if (in_blocks) block[h][at.inner] = row[h];
        if (last) set_lane<32>(dots, h, dot_to_single(join_dot(row[h])));
      }
    }
    if (!accumulating && last && within) results.write(dots);
    slot = slot == last_slot ? 0 : slot + 1;
    at = next_position(at, plan);
  }
  if (accumulating) drain_accumulators<kGroup>(sums, plan.chunks, results);
  finite = clean;
}

template <int kGroup>
void run_gemv(Stream<beat_t>& operands, Stream<beat_t>& beats, const GemvPlan& plan, Stream<beat_t>& results,
              bool& finite) {
#pragma HLS DATAFLOW
  DATAFLOW_FIFO(4, rows, beat_t);
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(transpose_blocks, beats, plan.squares, rows);
  DATAFLOW_STAGE(multiply_beats<kGroup>, operands, rows, plan, results, finite);
  DATAFLOW_END
}

template <int kGroup>
int gemv(Stream<beat_t>& operands, Stream<beat_t>& beats, Stream<beat_t>& results, int mode, int width, int tokens) {
#pragma HLS INLINE
  static_assert(kGroup >= 1 && kGroup <= abi::kMaxGroup, "as many heads as a job may have");
  const GemvPlan plan = make_gemv_plan(mode, width, tokens);
  if (plan.status != 0) return plan.status;
  bool finite = true;
  run_gemv<kGroup>(operands, beats, plan, results, finite);
  return finite ? 0 : static_cast<int>(abi::kNonFinite);
}

// C linkage: v++ finds a kernel by its linker name.
extern "C" {
int gemv_g1(Stream<beat_t>& operands, Stream<beat_t>& beats, Stream<beat_t>& results, int mode, int width, int tokens);
int gemv_g2(Stream<beat_t>& operands, Stream<beat_t>& beats, Stream<beat_t>& results, int mode, int width, int tokens);
int gemv_g4(Stream<beat_t>& operands, Stream<beat_t>& beats, Stream<beat_t>& results, int mode, int width, int tokens);
int gemv_g5(Stream<beat_t>& operands, Stream<beat_t>& beats, Stream<beat_t>& results, int mode, int width, int tokens);
int gemv_g8(Stream<beat_t>& operands, Stream<beat_t>& beats, Stream<beat_t>& results, int mode, int width, int tokens);
}

}  // namespace kvdrive
