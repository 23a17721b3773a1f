// SPDX-License-Identifier: Apache-2.0
#include "softmax/softmax.hpp"

#include <algorithm>

#include "common/dataflow.hpp"
#include "engine/hls/calls/beats.hpp"
#include "engine/hls/calls/calls.hpp"

namespace kvdrive::hls {
namespace {

struct Totals {
  int status = 0;
  int max = 0;
  ap_uint<64> sum = 0;
};

void feed_scores(std::span<const std::int32_t> scores, Stream<score_t>& to) {
  for (const std::int32_t score : scores) to.write(score);
}

void feed_beats(const std::vector<beat_t>& beats, Stream<beat_t>& to) {
  for (const beat_t& beat : beats) to.write(beat);
}

void run_top(Stream<score_t>& dense, Stream<beat_t>& valid, Stream<score_t>& tail, Stream<prob_t>& p, int dense_count,
             int tail_count, bool masked, Totals& totals) {
  totals.status =
      kvdrive::softmax(dense, valid, tail, p, dense_count, tail_count, masked ? 1 : 0, totals.max, totals.sum);
}

void collect(Stream<prob_t>& p, std::vector<std::uint32_t>& to) {
  for (std::uint32_t& value : to) value = p.read().to_uint();
}

}  // namespace

void call_softmax(std::span<const std::int32_t> dense, const std::uint8_t* valid, std::span<const std::int32_t> tail,
                  SoftmaxResult& result) {
  result.p.resize(dense.size() + tail.size());
  if (result.p.empty() || result.p.size() > abi::kMaxTokens) {  // the kernel would refuse the job and read nothing
    result.status = abi::kBadLength;
    return;
  }
  const std::vector<beat_t> valid_beats = to_beats(valid, valid == nullptr ? 0 : (dense.size() + 7) / 8);
  Fifo<score_t, 64> dense_stream("dense_scores");
  Fifo<beat_t, 2> valid_stream("valid");
  Fifo<score_t, 64> tail_stream("tail_scores");
  Fifo<prob_t, 64> p_stream("p");
  Totals totals;
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(feed_scores, dense, dense_stream);
  DATAFLOW_STAGE(feed_beats, valid_beats, valid_stream);
  DATAFLOW_STAGE(feed_scores, tail, tail_stream);
  DATAFLOW_STAGE(run_top, dense_stream, valid_stream, tail_stream, p_stream, static_cast<int>(dense.size()),
                 static_cast<int>(tail.size()), valid != nullptr, totals);
  DATAFLOW_STAGE(collect, p_stream, result.p);
  DATAFLOW_END
  result.status = static_cast<std::uint32_t>(totals.status);
  result.max = totals.max;
  result.sum = totals.sum.to_uint64();
}

}  // namespace kvdrive::hls
