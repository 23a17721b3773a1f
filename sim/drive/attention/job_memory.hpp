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
  bool over_codes = false;  // K and V of the job are codes, if the engine reads them; device time counts so

  explicit JobMemory(Engine& engine) : engine_(engine) {}
  // A job in a part of the memory in use, beside other jobs. `origin`: the first byte of this part, which is large
  // enough.
  JobMemory(Engine& engine, std::uint64_t origin) : engine_(engine), origin_(origin), part_(true) {}

  // Starts a new job for a head: its queries and zeroed records. All earlier arrays are dropped.
  void start(const Head& head, abi::Mode mode) {
    job = {};
    over_codes = false;
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
    const std::uint64_t address = origin_ + used_;
    used_ += whole_beats(bytes);
    if (!part_) engine_.memory().use(used_);
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
    job.inline_tokens = head.command.inline_tokens;
    job.inline_scores = place(head.inline_scores);
    job.inline_v = with_v ? place(head.inline_v) : 0;
  }
  // Lets the next array begin at a page, as reads around the page cache need it.
  void align_to_page() {
    used_ = (origin_ + used_ + abi::kPageBytes - 1) / abi::kPageBytes * abi::kPageBytes - origin_;
  }

  // Reserves `bytes` more, so that later arrays up to this size leave pointers valid.
  void reserve(std::uint64_t bytes) {
    engine_.memory().use(used_ + bytes);
    engine_.memory().use(used_);
  }

  std::byte* at(std::uint64_t address) { return engine_.memory().used().data() + address; }
  std::span<std::byte> records() { return {at(job.result), records_of(job.group) * sizeof(abi::AttentionResult)}; }
  abi::AttentionResult record() {
    abi::AttentionResult record;
    std::memcpy(&record, at(job.result), sizeof record);
    return record;
  }

  // Runs the job. K and V come from `pages` if it is given. Returns the engine's status word.
  std::uint32_t run(const KvPages* pages) {
    write_descriptor();
    return holds_codes() ? engine_.attend_codes(origin_) : engine_.attend(origin_, pages);
  }
  // True if K and V have to be placed as codes.
  bool holds_codes() const { return over_codes && engine_.reads_codes(); }
  // Runs a choice of groups in place of an attention job. Returns the engine's status word. `index`: see
  // Engine::choose_groups.
  std::uint32_t choose(const abi::GroupChoiceJob& choice, std::span<const std::byte* const> index) {
    static_assert(sizeof choice == sizeof job && sizeof(abi::GroupChoiceResult) == sizeof(abi::AttentionResult));
    std::memcpy(at(origin_), &choice, sizeof choice);
    return engine_.choose_groups(origin_, index);
  }
  // Starts the job beside others.
  void start_on(JobQueue& queue) {
    write_descriptor();
    queue.start(origin_, used_);
  }

 private:
  void write_descriptor() { std::memcpy(at(origin_), &job, sizeof job); }

  Engine& engine_;
  const std::uint64_t origin_ = 0;
  const bool part_ = false;
  std::uint64_t used_ = 0;  // bytes from the origin on
};

}  // namespace kvdrive
