// SPDX-License-Identifier: Apache-2.0
// Top of ffn.
#include "ffn/ffn.hpp"

namespace kvdrive {

int ffn_block(Stream<beat_t>& inputs, Stream<beat_t>& activations, Stream<beat_t>& rows, Stream<beat_t>& results,
              int activation, int matrices, int hidden, int neurons) {
#pragma HLS INTERFACE mode = axis port = inputs
#pragma HLS INTERFACE mode = axis port = activations
#pragma HLS INTERFACE mode = axis port = rows
#pragma HLS INTERFACE mode = axis port = results
#pragma HLS INTERFACE mode = s_axilite port = activation
#pragma HLS INTERFACE mode = s_axilite port = matrices
#pragma HLS INTERFACE mode = s_axilite port = hidden
#pragma HLS INTERFACE mode = s_axilite port = neurons
#pragma HLS INTERFACE mode = s_axilite port = return
  const ffn::Plan plan = ffn::make_plan(activation, matrices, hidden, neurons);
  if (plan.status != 0) return plan.status;
  bool rows_finite = true;
  bool hidden_finite = true;
  ffn::run(inputs, activations, rows, plan, results, rows_finite, hidden_finite);
  return rows_finite && hidden_finite ? 0 : static_cast<int>(abi::kNonFinite);
}

}  // namespace kvdrive
