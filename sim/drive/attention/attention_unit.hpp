// SPDX-License-Identifier: Apache-2.0
// ATTN_SUBMIT: gathers K and V of each head into job memory, runs the engine, keeps the record and the output.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "attention/job_memory.hpp"
#include "common/abi.hpp"
#include "engine/engine.hpp"
#include "kv/kv_store.hpp"
#include "kv/row_fetch.hpp"
#include "kv/row_filter.hpp"
#include "storage/transfer_threads.hpp"

namespace kvdrive {

// What ATTN_FETCH returns for a ticket.
struct AttentionOutcome {
  abi::NvmeStatus status = abi::kSuccess;
  std::uint64_t result = 0;     // the engine's status word when it refused a job
  std::vector<std::byte> data;  // [heads] AttentionResult, then the heads' outputs; empty on failure
  Ns done = 0;                  // device time
};

class AttentionUnit {
 public:
  AttentionUnit(Engine& engine, KvStore& store, Ftl& ftl, NandDevice& device)
      : engine_(engine), store_(store), ftl_(ftl), device_(device) {}

  // Whether the command can run: fields, payload length, stored tokens. Reads no page.
  abi::NvmeStatus check(const abi::AttnSubmit& command, std::size_t data_bytes) const;

  // Length of the command's data; nothing when its first head is not there.
  std::optional<std::uint64_t> payload_bytes(const abi::AttnSubmit& command) const;

  // Precondition: check() succeeded. A failure of any head is the failure of the command.
  AttentionOutcome run(const abi::AttnSubmit& command, std::span<const std::byte> data, Ns arrival);

  // Runs a job in a memory that its user filled, from `start` on.
  struct ForeignJob {
    std::uint32_t engine_status = 0;
    Ns done = 0;
  };
  ForeignJob run_in(std::span<std::byte> memory, std::uint64_t job, Ns start);

  std::uint64_t jobs() const { return jobs_; }
  std::uint64_t tail_bytes_read() const { return tail_bytes_read_; }
  std::uint64_t engine_cycles() const { return engine_cycles_; }
  const FilterCounters& filtered() const { return filter_.counters(); }

 private:
  // One head's share of the command.
  struct Head {
    const abi::AttnSubmit& command;
    const HeadRows& k;
    const HeadRows& v;
    std::span<const std::byte> q, valid, tail_scores, tail_v;

    bool is_valid(std::uint32_t token) const {
      return valid.empty() || (std::to_integer<unsigned>(valid[token / 8]) >> token % 8 & 1) != 0;
    }
    bool any_valid(std::uint32_t first, std::uint32_t end) const;
    // Of `rows`, a flag for each group with one of the first `end` tokens: whether a valid one is in it.
    std::vector<bool> wanted_groups(const HeadRows& rows, std::uint32_t end) const;
  };
  struct Outcome {
    abi::NvmeStatus status = abi::kSuccess;
    std::uint32_t engine_status = 0;
  };
  class SparfHead;  // of a streamed command

  Head head_of(const abi::AttnSubmit& command, std::span<const std::byte> data, std::uint32_t index) const;
  AttentionOutcome collect(const abi::AttnSubmit& command, const std::function<Outcome(std::uint32_t)>& run_head);
  AttentionOutcome run_dense(const abi::AttnSubmit& command, std::span<const std::byte> data);
  AttentionOutcome run_paged(const abi::AttnSubmit& command, std::span<const std::byte> data);
  AttentionOutcome run_streamed(const abi::AttnSubmit& command, std::span<const std::byte> data);
  AttentionOutcome refuse_damaged(std::uint32_t groups);
  AttentionOutcome run_sparf_streamed(const abi::AttnSubmit& command, std::span<const std::byte> data);
  Outcome run_copied(const Head& head);
  void fetch_rows(const Head& head, const HeadRows& rows, std::uint32_t first, std::byte* to, RowFetch& fetch);
  void start_dense(const Head& head);
  Outcome run_sparf(const Head& head);
  Outcome choose_rows(const Head& head);
  Outcome choose_tokens(const Head& head);
  Outcome attend_to_chosen(const Head& head);
  bool place_columns(const Head& head, const std::vector<bool>& rows);
  bool place_chosen(const Head& head, const std::vector<bool>& chosen);
  bool place_mean(const Head& head);
  void place_tail(const Head& head, bool with_v);
  void start_job(const Head& head, abi::Mode mode);
  Outcome run_job(const KvPages* pages = nullptr);
  void count_job(const abi::AttentionJob& job, Ns data_done);
  std::vector<bool> flags_at(std::uint64_t address, std::uint32_t count);

  Engine& engine_;
  KvStore& store_;
  Ftl& ftl_;
  NandDevice& device_;
  RowFilter filter_{engine_, ftl_};
  TransferThreads threads_{1};
  JobMemory job_memories_[2];  // of a head, and of the next one where two are under way
  JobMemory* memory_ = &job_memories_[0];
  Ns ready_ = 0;      // the present command's reads start here
  Ns data_done_ = 0;  // what the present job needs is in memory
  Ns engine_free_ = 0;
  std::uint64_t jobs_ = 0;
  std::uint64_t tail_bytes_read_ = 0;
  std::uint64_t engine_cycles_ = 0;
};

}  // namespace kvdrive
