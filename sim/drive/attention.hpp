// SPDX-License-Identifier: Apache-2.0
// ATTN_SUBMIT: gathers K and V of each head into job memory, runs the engine, keeps the record and the output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/abi.hpp"
#include "engine/engine.hpp"
#include "kv_store.hpp"

namespace kvdrive {

// What ATTN_FETCH returns for a ticket.
struct AttentionOutcome {
  abi::NvmeStatus status = abi::kSuccess;
  std::uint64_t result = 0;     // the engine's status word when it refused a job
  std::vector<std::byte> data;  // [heads] AttentionResult, then out [heads][group][d] binary16; empty on failure
};

class AttentionUnit {
 public:
  AttentionUnit(Engine& engine, KvStore& store, PageStore& pages) : engine_(engine), store_(store), pages_(pages) {}

  // Whether the command can run: fields, payload length, stored tokens. Reads no page.
  abi::NvmeStatus check(const abi::AttnSubmit& command, std::size_t data_bytes) const;

  // Precondition: check() succeeded. A failure of any head is the failure of the command.
  AttentionOutcome run(const abi::AttnSubmit& command, std::span<const std::byte> data);

  std::uint64_t jobs() const { return jobs_; }
  std::uint64_t tail_bytes_read() const { return tail_bytes_read_; }

 private:
  struct alignas(abi::kBeatBytes) Beat {
    std::byte bytes[abi::kBeatBytes];
  };

  abi::NvmeStatus run_head(const abi::AttnSubmit& command, std::uint32_t head, std::span<const std::byte> q,
                           std::span<const std::byte> valid, std::span<std::byte> record, std::span<std::byte> out,
                           std::uint32_t& engine_status);

  Engine& engine_;
  KvStore& store_;
  PageStore& pages_;
  std::vector<Beat> memory_;  // the engine's memory, kept between jobs
  std::uint64_t jobs_ = 0;
  std::uint64_t tail_bytes_read_ = 0;
};

}  // namespace kvdrive
