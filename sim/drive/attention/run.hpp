// SPDX-License-Identifier: Apache-2.0
// The ways to run an ATTN_SUBMIT, and the state that they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "attention/dense_streams.hpp"
#include "attention/engine_clock.hpp"
#include "attention/head.hpp"
#include "attention/job_memory.hpp"
#include "attention/page_source.hpp"
#include "engine/engine.hpp"
#include "ftl/ftl.hpp"
#include "storage/transfer_threads.hpp"

namespace kvdrive {

// What ATTN_FETCH returns for a ticket.
struct AttentionOutcome {
  abi::NvmeStatus status = abi::kSuccess;
  std::uint64_t result = 0;     // the engine's status word if it refused a job
  std::vector<std::byte> data;  // the records of all heads, then their outputs; empty on failure
  std::uint32_t rows = 0;       // of ATTN_SUBMIT_ROWS, whose data begin with an AttnRowResult for each; else 0
  bool lost = false;            // a row found damaged groups
  Ns done = 0;                  // device time
};

// The objects that runs share. They must outlive the runs.
struct RunContext {
  Engine& engine;
  Ftl& ftl;
  EngineClock& clock;
  JobMemory& memory;
  TransferThreads& threads;
  std::vector<std::vector<std::byte>>& buffers;  // for pages; kept, because fresh memory costs as much as a copy
  FilterCounters& filtered;
  std::uint64_t& staged_bytes;  // K and V read from staged rows
  DenseStreams& streams;
  RowPlace place;
  Ns ready = 0;  // device time at which the command's reads start
};

// The status of a command whose job ended with this status word.
abi::NvmeStatus status_of(std::uint32_t engine_status);

struct HeadOutcome {
  abi::NvmeStatus status = abi::kSuccess;
  std::uint32_t engine_status = 0;
  Ns done = 0;  // device time at which its last read or job ended
};

// Counts the job in `context.memory` and runs it. A drive without contents only counts its time.
HeadOutcome run_job(RunContext& context, Ns data_done, const KvPages* pages = nullptr);

// Collects records and outputs of all heads, until one fails. `run_head` leaves its results in `context.memory`.
AttentionOutcome collect(RunContext& context, std::span<const Head> heads,
                         const std::function<HeadOutcome(std::size_t)>& run_head);

AttentionOutcome run_exact(RunContext& context, std::span<const Head> heads, PageSource& pages);
AttentionOutcome run_sparf(RunContext& context, std::span<const Head> heads, PageSource& pages);
AttentionOutcome run_groups(RunContext& context, std::span<const Head> heads, PageSource& pages);

}  // namespace kvdrive
