// SPDX-License-Identifier: Apache-2.0
// csim of softmax: feeders, the kernel and a collector.
#include "common/csim.hpp"
#include "common/dataflow.hpp"
#include "softmax/softmax.hpp"

namespace {

using kvdrive::beat_t;
using kvdrive::score_t;
using kvdrive::Stream;
using kvdrive::csim::Case;

struct Output {
  int status = 0;
  int max = 0;
  ap_uint<64> sum = 0;
  std::vector<std::uint32_t> p;
};

void feed_scores(const std::vector<std::int32_t>& scores, bool accepted, Stream<score_t>& to) {
  if (!accepted) return;
  for (const std::int32_t score : scores) to.write(score);
}

void feed_beats(const std::vector<beat_t>& beats, bool accepted, Stream<beat_t>& to) {
  if (!accepted) return;
  for (const beat_t& beat : beats) to.write(beat);
}

void run_top(Stream<score_t>& dense, Stream<beat_t>& valid, Stream<score_t>& tail, Stream<kvdrive::prob_t>& p,
             const Case& item, Output& output) {
  output.status = kvdrive::softmax(dense, valid, tail, p, item.scalar<int>("dense_count"),
                                   item.scalar<int>("tail_count"), item.scalar<int>("masked"), output.max, output.sum);
}

void collect(Stream<kvdrive::prob_t>& p, std::size_t count, std::vector<std::uint32_t>& to) {
  for (std::size_t i = 0; i < count; ++i) to.push_back(p.read().to_uint());
}

void check(const Case& item) {
  const auto dense_scores = item.array<std::int32_t>("dense");
  const auto tail_scores = item.array<std::int32_t>("tail");
  const auto valid_beats = item.beats("valid");
  const auto expected = item.array<std::uint32_t>("p");
  const int status = item.scalar<int>("status");
  const bool accepted = status != kvdrive::abi::kBadLength;
  kvdrive::Fifo<score_t, 2> dense("dense");
  kvdrive::Fifo<beat_t, 2> valid("valid");
  kvdrive::Fifo<score_t, 2> tail("tail");
  kvdrive::Fifo<kvdrive::prob_t, 2> p("p");
  Output output;
  output.max = -1;
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(feed_scores, dense_scores, accepted, dense);
  DATAFLOW_STAGE(feed_beats, valid_beats, accepted, valid);
  DATAFLOW_STAGE(feed_scores, tail_scores, accepted, tail);
  DATAFLOW_STAGE(run_top, dense, valid, tail, p, item, output);
  DATAFLOW_STAGE(collect, p, accepted ? expected.size() : 0, output.p);
  DATAFLOW_END
  kvdrive::csim::compare("status", output.status, status);
  kvdrive::csim::compare("max", output.max, item.scalar<int>("max"));
  kvdrive::csim::compare("sum", static_cast<std::uint64_t>(output.sum.to_uint64()), item.scalar<std::uint64_t>("sum"));
  if (accepted) kvdrive::csim::compare("p", output.p, expected);
}

}  // namespace

int main(int argc, char** argv) { return kvdrive::csim::run(argc, argv, check); }
