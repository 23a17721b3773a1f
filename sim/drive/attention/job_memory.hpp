// SPDX-License-Identifier: Apache-2.0
// One job in the engine's memory: the descriptor at byte 0, the records, then the arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "attention/head.hpp"
#include "common/abi.hpp"
#include "engine/engine.hpp"
#include "engine/shapes.hpp"

namespace kvdrive {

class JobMemory {
 public:
  abi::AttentionJob job{};

  explicit JobMemory(Engine& engine) : engine_(engine) {}

  // Starts a new job for a head: its queries and zeroed records. All earlier arrays are dropped.
  void start(const Head& head, abi::Mode mode) {
    job = {};
    job.version = abi::kAbiVersion;
    job.mode = static_cast<std::uint8_t>(mode);
    job.group = head.command.group;
    job.head_dim = static_cast<std::uint16_t>(head.k.head_dim());
    job.scale_log2e = head.command.scale_log2e;
    job.tokens = head.command.tokens;
    used_ = sizeof(abi::AttentionJob);
    job.result = place(records_of(job.group) * sizeof(abi::AttentionResult));
    std::memset(at(job.result), 0, records().size());
    job.q = place(head.q);
  }

  // Makes room for an array of `bytes` with undefined contents and returns its address. Earlier pointers become
  // invalid.
  std::uint64_t place(std::uint64_t bytes) {
    const std::uint64_t address = used_;
    used_ += whole_beats(bytes);
    base_ = engine_.memory().use(used_).data();
    return address;
  }
  std::uint64_t place(std::span<const std::byte> contents) {
    const std::uint64_t address = place(contents.size());
    if (!contents.empty()) std::memcpy(at(address), contents.data(), contents.size());
    return address;
  }
  std::uint64_t place_zeros(std::uint64_t bytes) {
    const std::uint64_t address = place(bytes);
    std::memset(at(address), 0, bytes);
    return address;
  }
  // Places the inline tokens. `with_v`: their V as well as their scores.
  void place_inline_tokens(const Head& head, bool with_v) {
    job.tail_tokens = head.command.tail_tokens;
    job.tail_scores = place(head.inline_scores);
    job.tail_v = with_v ? place(head.inline_v) : 0;
  }

  // Reserves `bytes` more, so that later arrays up to this size leave pointers valid.
  void reserve(std::uint64_t bytes) {
    base_ = engine_.memory().use(used_ + bytes).data();
    base_ = engine_.memory().use(used_).data();
  }

  std::byte* at(std::uint64_t address) { return base_ + address; }
  std::span<std::byte> records() { return {at(job.result), records_of(job.group) * sizeof(abi::AttentionResult)}; }
  abi::AttentionResult record() {
    abi::AttentionResult record;
    std::memcpy(&record, at(job.result), sizeof record);
    return record;
  }

  // Runs the job. K and V come from `pages` if it is given. Returns the engine's status word.
  std::uint32_t run(const KvPages* pages) {
    std::memcpy(at(0), &job, sizeof job);
    const std::uint32_t status = engine_.attend(0, pages);
    base_ = engine_.memory().used().data();  // the engine may have grown its memory
    return status;
  }

 private:
  Engine& engine_;
  std::byte* base_ = nullptr;
  std::uint64_t used_ = 0;
};

}  // namespace kvdrive
