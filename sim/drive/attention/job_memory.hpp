// SPDX-License-Identifier: Apache-2.0
// The engine's memory with one job in it: a descriptor at 0, the record, then arrays one behind the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "common/abi.hpp"
#include "engine/engine.hpp"

namespace kvdrive {

constexpr std::uint64_t whole_beats(std::uint64_t bytes) {
  return (bytes + abi::kBeatBytes - 1) / abi::kBeatBytes * abi::kBeatBytes;
}

class JobMemory {
 public:
  abi::AttentionJob job{};

  // Forgets all arrays, and the record's contents.
  void clear() {
    job = {};
    job.version = abi::kAbiVersion;
    used_ = sizeof(abi::AttentionJob);
    job.result = place(sizeof(abi::AttentionResult));
    std::memset(at(job.result), 0, sizeof(abi::AttentionResult));
  }

  // An array of `bytes` with any contents: its address. Pointers from before are invalid.
  std::uint64_t place(std::uint64_t bytes) {
    const std::uint64_t address = used_;
    used_ += whole_beats(bytes);
    beats_.resize(std::max<std::size_t>(beats_.size(), used_ / abi::kBeatBytes));
    return address;
  }
  std::uint64_t place(std::span<const std::byte> contents) {
    const std::uint64_t address = place(contents.size());
    if (!contents.empty()) std::memcpy(at(address), contents.data(), contents.size());
    return address;
  }

  std::byte* at(std::uint64_t address) { return reinterpret_cast<std::byte*>(beats_.data()) + address; }
  abi::AttentionResult record() {
    abi::AttentionResult record;
    std::memcpy(&record, at(job.result), sizeof record);
    return record;
  }

  // Runs the job, K and V in `pages` if they are given; the engine's status word.
  std::uint32_t run(Engine& engine, const KvPages* pages = nullptr) {
    std::memcpy(at(0), &job, sizeof job);
    const std::span<std::byte> memory(at(0), used_);
    return pages != nullptr ? engine.attention(memory, 0, *pages) : engine.attention(memory, 0);
  }

 private:
  struct alignas(abi::kBeatBytes) Beat {
    std::byte bytes[abi::kBeatBytes];
  };
  std::vector<Beat> beats_;  // kept between jobs
  std::uint64_t used_ = 0;
};

}  // namespace kvdrive
