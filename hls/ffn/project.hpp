// SPDX-License-Identifier: Apache-2.0
// The products of x with the rows of gate and up. The rows of down pass by.
#pragma once

#include "common/dot.hpp"
#include "common/stream.hpp"
#include "ffn/plan.hpp"

namespace kvdrive {
namespace ffn {

using InputMemory = HalfParts[abi::kLanes][kMostChunks];

// A sum of at most 2^13 products of two halves: below 2^54 each in `low`, below 2^49 in `high`.
using ProjectionSum = SplitSum<68, 63>;

inline single_t projection_to_single(const ProjectionSum& sum) {
#pragma HLS INLINE
  return wide_to_single<-48>(join<96>(sum));
}

// x, unpacked; false if it holds an Inf or NaN.
inline bool load_input(Stream<beat_t>& inputs, const Plan& plan, InputMemory& x) {
#pragma HLS INLINE
  bool finite = true;
  const int beats = plan.matrices > 1 ? plan.chunks : 0;
load_input:
  for (int chunk = 0; chunk < beats; ++chunk) {
#pragma HLS PIPELINE II = 1
    HalfParts parts[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = parts complete
    const bool clean = unpack_lanes(inputs.read(), parts);
    finite = finite && clean;
    for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
      x[l][chunk] = parts[l];
    }
  }
  return finite;
}

inline void project_rows(Stream<beat_t>& inputs, Stream<beat_t>& rows, Plan plan, Stream<single_t>& gates,
                         Stream<single_t>& ups, Stream<beat_t>& downs, bool& finite) {
  InputMemory x;
#pragma HLS ARRAY_PARTITION variable = x complete dim = 1
  bool clean = load_input(inputs, plan, x);
  ProjectionSum sum = {0, 0};
  int chunk = 0;
  int matrix = 0;
project_rows:
  for (int i = 0; i < plan.beats; ++i) {
#pragma HLS PIPELINE II = 1
    const beat_t beat = rows.read();
    const bool down = matrix == plan.matrices - 1;
    const bool gate = matrix == plan.matrices - 3;
    const bool last = chunk == plan.chunks - 1;
    HalfParts parts[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = parts complete
    const bool beat_clean = unpack_lanes(beat, parts);
    clean = clean && beat_clean;
    Term terms[abi::kLanes];
#pragma HLS ARRAY_PARTITION variable = terms complete
    for (int l = 0; l < abi::kLanes; ++l) {
#pragma HLS UNROLL
      terms[l] = multiply(to_operand(x[l][chunk]), parts[l]);
    }
    const DotSum products = sum_terms(terms);
    const ProjectionSum before = chunk == 0 ? ProjectionSum{0, 0} : sum;
    sum.low = before.low + products.low;
    sum.high = before.high + products.high;
    if (down) {
      downs.write(beat);
    } else if (last) {
      const single_t dot = projection_to_single(sum);
      if (gate) {
        gates.write(dot);
      } else {
        ups.write(dot);
      }
    }
    chunk = last ? 0 : chunk + 1;
    if (last) matrix = down ? 0 : matrix + 1;
  }
  finite = clean;
}

}  // namespace ffn
}  // namespace kvdrive
