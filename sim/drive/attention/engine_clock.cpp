// SPDX-License-Identifier: Apache-2.0
#include "attention/engine_clock.hpp"

#include <algorithm>
#include <iterator>

#include "engine/cycles.hpp"
#include "engine/shapes.hpp"

namespace kvdrive {
// The cycles of the kernel calls of a job (engine/built_shapes.hpp). A choice over more heads than a call holds counts
// as the calls that would compute its scores. `digits` is the largest number that the choice of rows or tokens can
// need; the real number depends on the data.
std::uint64_t EngineClock::job_cycles(const abi::AttentionJob& job) {
  std::int64_t cycles = 0;
  for (unsigned call = 0; call < kernel_calls(job.group); ++call) {
    cycles += attention_cycles({.mode = job.mode,
                                .g = built_group(kernel_call(job.group, call).heads),
                                .d = built_head_dim(job.head_dim),
                                .tokens = job.tokens,
                                .inline_tokens = job.inline_tokens,
                                .r = job.r,
                                .k_top = job.k_top,
                                .digits = job.mode == abi::kSparfRows ? 2 : 4});
  }
  return static_cast<std::uint64_t>(cycles);
}

std::uint64_t EngineClock::code_job_cycles(const abi::AttentionJob& job) {
  return static_cast<std::uint64_t>(code_cycles({.mode = job.mode,
                                                 .bits = job.r,
                                                 .g = job.group,
                                                 .d = job.head_dim,
                                                 .tokens = job.tokens,
                                                 .inline_tokens = job.inline_tokens}));
}

// Shapes that no kernel is built for count as the next larger ones.
std::uint64_t EngineClock::job_cycles(const abi::GroupChoiceJob& job) {
  static_assert(*std::rbegin(abi::kChoiceHeadDims) == abi::kMaxHeadDim);
  const std::uint32_t* const larger = std::ranges::lower_bound(abi::kChoiceHeadDims, std::uint32_t{job.head_dim});
  const std::uint32_t dim = larger == std::end(abi::kChoiceHeadDims) ? abi::kMaxHeadDim : *larger;
  std::int64_t cycles = 0;
  for (unsigned call = 0; call < kernel_calls(job.group); ++call) {
    cycles += choice_cycles({.g = built_group(kernel_call(job.group, call).heads),
                             .d = dim,
                             .tokens = job.tokens,
                             .inline_tokens = job.inline_tokens,
                             .units = (job.tokens + job.unit - 1) / job.unit});
  }
  return static_cast<std::uint64_t>(cycles);
}

// One call of the kernel for each token. Smaller numbers of x are padded to the least that the kernel takes.
std::uint64_t EngineClock::block_cycles(const FfnBlock& block) {
  constexpr unsigned kLeastHidden = 256;
  const unsigned hidden = std::max<unsigned>(whole_lanes(block.hidden), kLeastHidden);
  return block.tokens * static_cast<std::uint64_t>(
                            ffn_cycles({.hidden = hidden, .matrices = block.matrices, .neurons = block.neurons}));
}

Ns EngineClock::add(Kernel kernel, std::uint64_t cycles, Ns data_done) {
  cycles_ += cycles;
  if (!device_.timing().modelled()) return data_done;
  const Ns start = std::max(free_[kernel], data_done), end = start + cycles * 1000 / device_.timing().engine_mhz;
  device_.trace().add(TraceTrack::kEngine, kernel, TraceWork::kJob, start, end, cycles);
  return free_[kernel] = end;
}

}  // namespace kvdrive
