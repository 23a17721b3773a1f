// SPDX-License-Identifier: Apache-2.0
#include "ffn/ffn.hpp"

#include <algorithm>
#include <vector>

#include "engine/hls/calls/beats.hpp"
#include "engine/hls/calls/calls.hpp"

namespace kvdrive::hls {
namespace {

void feed(const std::vector<beat_t>& beats, Stream<beat_t>& to) {
  for (const beat_t& beat : beats) to.write(beat);
}

// A call of the kernel.
struct Call {
  int activation, matrices, hidden, neurons;
};

void run_top(Stream<beat_t>& inputs, Stream<beat_t>& activations, Stream<beat_t>& rows, Stream<beat_t>& results,
             const Call& call, int& status) {
  status = ffn_block(inputs, activations, rows, results, call.activation, call.matrices, call.hidden, call.neurons);
}

void collect(Stream<beat_t>& results, std::vector<beat_t>& to) {
  for (beat_t& beat : to) beat = results.read();
}

// Rows of `hidden` numbers as beats; each row is padded with zeros to `padded` numbers.
std::vector<beat_t> pad_rows(const std::uint16_t* numbers, std::size_t rows, std::size_t hidden, std::size_t padded) {
  if (hidden == padded) return to_beats(numbers, rows * hidden * sizeof(std::uint16_t));
  std::vector<std::uint16_t> wide(rows * padded);
  for (std::size_t row = 0; row < rows; ++row) std::copy_n(numbers + row * hidden, hidden, wide.data() + row * padded);
  return to_beats(wide.data(), wide.size() * sizeof(std::uint16_t));
}

}  // namespace

std::uint32_t call_ffn(const FfnBlock& block, FfnSum* sums) {
  const std::size_t hidden = std::max<std::size_t>(whole_lanes(block.hidden), kvdrive::ffn::kLeastHidden);
  const std::vector<beat_t> row_beats =
      pad_rows(block.rows, std::size_t{block.neurons} * block.matrices, block.hidden, hidden);
  const Call call = {static_cast<int>(block.activation), static_cast<int>(block.matrices), static_cast<int>(hidden),
                     static_cast<int>(block.neurons)};
  for (std::size_t token = 0; token < block.tokens; ++token) {
    std::vector<beat_t> input_beats, activation_beats, result_beats(hidden * sizeof(FfnSum) / abi::kBeatBytes);
    if (block.x != nullptr) input_beats = pad_rows(block.x + token * block.hidden, 1, block.hidden, hidden);
    if (block.activations != nullptr) {
      activation_beats =
          to_beats(block.activations + token * block.activation_stride, block.neurons * sizeof(std::uint16_t));
    }
    Fifo<beat_t, 64> inputs("inputs");
    Fifo<beat_t, 64> activations("activations");
    Fifo<beat_t, 64> rows("rows");
    Fifo<beat_t, 64> results("results");
    int status = 0;
    DATAFLOW_BEGIN
    DATAFLOW_STAGE(feed, input_beats, inputs);
    DATAFLOW_STAGE(feed, activation_beats, activations);
    DATAFLOW_STAGE(feed, row_beats, rows);
    DATAFLOW_STAGE(run_top, inputs, activations, rows, results, call, status);
    DATAFLOW_STAGE(collect, results, result_beats);
    DATAFLOW_END
    if (status != 0) return static_cast<std::uint32_t>(status);
    std::vector<FfnSum> found(hidden);
    from_beats(result_beats.data(), found.data(), found.size() * sizeof(FfnSum));
    for (std::size_t j = 0; j < block.hidden; ++j) sums[token * block.hidden + j] += found[j];
  }
  return 0;
}

}  // namespace kvdrive::hls
