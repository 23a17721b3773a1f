// SPDX-License-Identifier: Apache-2.0
// ffn: exact sums over some neurons of a feed-forward part for one x (docs/arithmetic.md, Feed-forward neurons).
//
//   inputs       x, hidden / 32 beats; none for one matrix
//   activations  one of each neuron, 32 a beat; with kGiven only
//   rows         [neurons][matrices][hidden / 32]: gate, up, down; up, down; or down alone
//   results      [hidden] sums, 128 bits, LSB 2^-48, four to a beat
//
// One 512-bit beat of rows a cycle: 32 multipliers for gate and up, 32 for down. Sums of several calls may be added up.
// Returns a status word. With BAD_MODE, BAD_HEAD_DIM (hidden is no multiple of 32 from 256 to 8192) or BAD_LENGTH no
// stream is touched; after NON_FINITE results have come out in full but mean nothing.
#pragma once

#include "common/dataflow.hpp"
#include "ffn/activate.hpp"
#include "ffn/add.hpp"
#include "ffn/project.hpp"

namespace kvdrive {
namespace ffn {

inline void run(Stream<beat_t>& inputs, Stream<beat_t>& given, Stream<beat_t>& rows, const Plan& plan,
                Stream<beat_t>& results, bool& rows_finite, bool& hidden_finite) {
#pragma HLS DATAFLOW
  DATAFLOW_FIFO(4, gates, single_t);
  DATAFLOW_FIFO(4, ups, single_t);
  // Rows of down wait while the activation of their neuron is computed.
  DATAFLOW_FIFO(128, downs, beat_t);
  DATAFLOW_FIFO(16, hidden, half_t);
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(project_rows, inputs, rows, plan, gates, ups, downs, rows_finite);
  DATAFLOW_STAGE(activate_neurons, given, plan, gates, ups, hidden, hidden_finite);
  DATAFLOW_STAGE(add_neurons, hidden, downs, plan, results);
  DATAFLOW_END
}

}  // namespace ffn

// C linkage: v++ finds a kernel by its linker name.
extern "C" int ffn_block(Stream<beat_t>& inputs, Stream<beat_t>& activations, Stream<beat_t>& rows,
                         Stream<beat_t>& results, int activation, int matrices, int hidden, int neurons);

}  // namespace kvdrive
