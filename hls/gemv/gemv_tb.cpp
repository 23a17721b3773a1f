// SPDX-License-Identifier: Apache-2.0
// csim of gemv: streams in and out exactly as the cases lay them out.
#include "common/csim.hpp"
#include "gemv/gemv.hpp"

namespace {

using kvdrive::beat_t;
using kvdrive::Stream;
using kvdrive::csim::Case;

void feed(const std::vector<beat_t>& beats, Stream<beat_t>& to) {
  for (const beat_t& beat : beats) to.write(beat);
}

void run_top(Stream<beat_t>& operands, Stream<beat_t>& beats, Stream<beat_t>& results, const Case& item, int& status) {
  const int mode = item.scalar<int>("mode");
  const int width = item.scalar<int>("width");
  const int tokens = item.scalar<int>("tokens");
  switch (item.scalar<int>("group")) {
    case 1:
      status = kvdrive::gemv_g1(operands, beats, results, mode, width, tokens);
      break;
    case 2:
      status = kvdrive::gemv_g2(operands, beats, results, mode, width, tokens);
      break;
    case 4:
      status = kvdrive::gemv_g4(operands, beats, results, mode, width, tokens);
      break;
    case 5:
      status = kvdrive::gemv_g5(operands, beats, results, mode, width, tokens);
      break;
    case 8:
      status = kvdrive::gemv_g8(operands, beats, results, mode, width, tokens);
      break;
    default:
      throw std::runtime_error("no top for this group");
  }
}

void collect(Stream<beat_t>& results, std::size_t count, std::vector<beat_t>& to) {
  for (std::size_t i = 0; i < count; ++i) to.push_back(results.read());
}

void check(const Case& item) {
  const auto operand_beats = item.beats("operands");
  const auto kv_beats = item.beats("beats");
  const auto count = item.scalar<std::size_t>("result_beats");
  kvdrive::Fifo<beat_t, 2> operands("operands");
  kvdrive::Fifo<beat_t, 2> beats("beats");
  kvdrive::Fifo<beat_t, 2> results("results");
  std::vector<beat_t> got;
  int status = 0;
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(feed, operand_beats, operands);
  DATAFLOW_STAGE(feed, kv_beats, beats);
  DATAFLOW_STAGE(run_top, operands, beats, results, item, status);
  DATAFLOW_STAGE(collect, results, count, got);
  DATAFLOW_END
  kvdrive::csim::compare("status", status, item.scalar<int>("status"));
  if (!item.has("results")) return;
  kvdrive::csim::compare("results", kvdrive::csim::from_beats<std::uint64_t>(got, 8 * got.size()),
                         item.array<std::uint64_t>("results"));
}

}  // namespace

int main(int argc, char** argv) { return kvdrive::csim::run(argc, argv, check); }
