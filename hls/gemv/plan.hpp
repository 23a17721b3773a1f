// SPDX-License-Identifier: Apache-2.0
// What a call of gemv does, and the order in which it visits beats.
#pragma once

#include "gemv/accumulators.hpp"
#include "gemv/transpose.hpp"

namespace kvdrive {

enum class GemvMode : int { kRows = 0, kColumns = 1, kAccumulate = 2 };

struct GemvPlan {
  int status = 0;
  GemvMode mode = GemvMode::kRows;
  int width = 0;   // head dimension; kColumns: embedding rows
  int chunks = 1;  // beats of a token
  int tokens = 0;
  int beats = 0;  // through the multipliers
  Squares squares = {};
};

inline GemvPlan make_gemv_plan(int mode, int width, int tokens) {
#pragma HLS INLINE
  GemvPlan plan;
  const bool columns = mode == static_cast<int>(GemvMode::kColumns);
  const bool in_range = width >= 1 && width <= abi::kMaxHeadDim;
  if (mode < 0 || mode > static_cast<int>(GemvMode::kAccumulate)) plan.status |= abi::kBadMode;
  if (columns && !in_range) plan.status |= abi::kBadR;
  if (!columns && (!in_range || width % abi::kHeadDimStep != 0)) plan.status |= abi::kBadHeadDim;
  if (tokens < 1 || tokens > abi::kMaxTokens) plan.status |= abi::kBadLength;
  if (plan.status != 0) return plan;
  plan.mode = static_cast<GemvMode>(mode);
  plan.width = width;
  plan.chunks = squares_of(width);
  plan.tokens = tokens;
  const int visited = columns ? abi::kLanes * squares_of(tokens) : tokens;
  plan.beats = visited * plan.chunks;
  const int arriving = columns ? width * squares_of(tokens) : plan.beats;
  const int rows = columns ? width : 1;
  plan.squares = {columns, rows, columns ? abi::kLanes * plan.chunks : 1, arriving, plan.beats};
  return plan;
}

// A beat's place: token-major, or in kColumns chunk-major within blocks of 32 tokens.
struct GemvPosition {
  int block = 0;  // first token of the block; kRows and kAccumulate: the token
  int inner = 0;  // token in the block
  int chunk = 0;
};

inline GemvPosition next_position(GemvPosition at, const GemvPlan& plan) {
#pragma HLS INLINE
  const int block_tokens = plan.mode == GemvMode::kColumns ? abi::kLanes : 1;
  if (++at.inner < block_tokens) return at;
  at.inner = 0;
  if (++at.chunk < plan.chunks) return at;
  at.chunk = 0;
  at.block += block_tokens;
  return at;
}

}  // namespace kvdrive
