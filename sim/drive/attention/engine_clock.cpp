// SPDX-License-Identifier: Apache-2.0
#include "attention/engine_clock.hpp"

#include <algorithm>

#include "engine/cycles.hpp"
#include "engine/shapes.hpp"

namespace kvdrive {
namespace {

// The cycles of the kernel calls of a job (engine/built_shapes.hpp). A choice over more heads than a call holds counts
// as the calls that would compute its scores. `digits` is the largest number that the choice of rows or tokens can
// need; the real number depends on the data.
std::uint64_t job_cycles(const abi::AttentionJob& job) {
  std::int64_t cycles = 0;
  for (unsigned call = 0; call < kernel_calls(job.group); ++call) {
    cycles += attention_cycles({.mode = job.mode,
                                .g = built_group(kernel_call(job.group, call).heads),
                                .d = built_head_dim(job.head_dim),
                                .tokens = job.tokens,
                                .tail = job.tail_tokens,
                                .r = job.r,
                                .k_top = job.k_top,
                                .digits = job.mode == abi::kSparfRows ? 2 : 4});
  }
  return static_cast<std::uint64_t>(cycles);
}

}  // namespace

void EngineClock::count(const abi::AttentionJob& job, Ns data_done) {
  ++jobs_;
  const std::uint64_t cycles = job_cycles(job);
  cycles_ += cycles;
  if (!device_.timing().modelled()) return;
  const Ns start = std::max(free_, data_done);
  free_ = start + cycles * 1000 / device_.timing().engine_mhz;
  device_.trace().add(TraceTrack::kEngine, 0, TraceWork::kJob, start, free_, cycles);
}

}  // namespace kvdrive
