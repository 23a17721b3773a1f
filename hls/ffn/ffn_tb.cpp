// SPDX-License-Identifier: Apache-2.0
// csim of ffn: streams in and out exactly as the cases lay them out.
#include "common/csim.hpp"
#include "ffn/ffn.hpp"

namespace {

using kvdrive::beat_t;
using kvdrive::Stream;
using kvdrive::csim::Case;

void feed(const std::vector<beat_t>& beats, Stream<beat_t>& to) {
  for (const beat_t& beat : beats) to.write(beat);
}

void run_top(Stream<beat_t>& inputs, Stream<beat_t>& activations, Stream<beat_t>& rows, Stream<beat_t>& results,
             const Case& item, int& status) {
  status = kvdrive::ffn_block(inputs, activations, rows, results, item.scalar<int>("activation"),
                              item.scalar<int>("matrices"), item.scalar<int>("hidden"), item.scalar<int>("neurons"));
}

void collect(Stream<beat_t>& results, std::size_t count, std::vector<beat_t>& to) {
  for (std::size_t i = 0; i < count; ++i) to.push_back(results.read());
}

void check(const Case& item) {
  const auto input_beats = item.beats("inputs");
  const auto activation_beats = item.beats("activations");
  const auto row_beats = item.beats("rows");
  const auto count = item.scalar<std::size_t>("result_beats");
  kvdrive::Fifo<beat_t, 2> inputs("inputs");
  kvdrive::Fifo<beat_t, 2> activations("activations");
  kvdrive::Fifo<beat_t, 2> rows("rows");
  kvdrive::Fifo<beat_t, 2> results("results");
  std::vector<beat_t> got;
  int status = 0;
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(feed, input_beats, inputs);
  DATAFLOW_STAGE(feed, activation_beats, activations);
  DATAFLOW_STAGE(feed, row_beats, rows);
  DATAFLOW_STAGE(run_top, inputs, activations, rows, results, item, status);
  DATAFLOW_STAGE(collect, results, count, got);
  DATAFLOW_END
  kvdrive::csim::compare("status", status, item.scalar<int>("status"));
  if (!item.has("results")) return;
  kvdrive::csim::compare("results", kvdrive::csim::from_beats<std::uint64_t>(got, 8 * got.size()),
                         item.array<std::uint64_t>("results"));
}

}  // namespace

int main(int argc, char** argv) { return kvdrive::csim::run(argc, argv, check); }
