// SPDX-License-Identifier: Apache-2.0
// Executes ATTN_SUBMIT: checks the command and runs it on the engine. Also runs jobs that the host laid out itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/engine_clock.hpp"
#include "attention/job_memory.hpp"
#include "attention/page_source.hpp"
#include "attention/run.hpp"
#include "common/abi.hpp"
#include "engine/engine.hpp"
#include "kv/kv_store.hpp"
#include "storage/transfer_threads.hpp"

namespace kvdrive {

class AttentionUnit {
 public:
  AttentionUnit(Engine& engine, KvStore& store, Ftl& ftl, NandDevice& device)
      : engine_(engine), store_(store), ftl_(ftl), device_(device), clock_(device), memory_(engine) {}

  // Returns SUCCESS if the command can run: its fields, the length of its data, the stored tokens. Reads no page.
  abi::NvmeStatus check(const abi::AttnSubmit& command, std::size_t data_bytes) const;

  // Returns the length of the command's data; nothing if the first head does not exist.
  std::optional<std::uint64_t> payload_bytes(const abi::AttnSubmit& command) const;

  // Precondition: check() succeeded. If any head fails, the whole command fails. `place`: among the rows of a command.
  AttentionOutcome run(const abi::AttnSubmit& command, std::span<const std::byte> data, Ns arrival,
                       const RowPlace& place = {});

  // Runs a job, from time `start` on, in a memory that the caller filled.
  struct ForeignJob {
    std::uint32_t engine_status = 0;
    Ns done = 0;
  };
  ForeignJob run_in(std::span<std::byte> memory, std::uint64_t job, Ns start);

  EngineClock& clock() { return clock_; }
  std::uint64_t jobs() const { return clock_.jobs(); }
  std::uint64_t staged_bytes_read() const { return staged_bytes_; }
  std::uint64_t engine_cycles() const { return clock_.cycles(); }
  const FilterCounters& filtered() const { return filtered_; }
  const DenseStreams& streams() const { return streams_; }

 private:
  AttentionOutcome run_now(const abi::AttnSubmit& command, std::span<const std::byte> data, Ns arrival,
                           const RowPlace& place);

  Engine& engine_;
  KvStore& store_;
  Ftl& ftl_;
  NandDevice& device_;
  EngineClock clock_;
  JobMemory memory_;
  DenseStreams streams_{store_, ftl_};
  TransferThreads threads_{1};
  std::vector<std::vector<std::byte>> buffers_;
  FilterCounters filtered_;
  std::uint64_t staged_bytes_ = 0;
};

}  // namespace kvdrive
