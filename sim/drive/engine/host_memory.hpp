// SPDX-License-Identifier: Apache-2.0
// The memory of an engine that computes on the host's processor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/abi.hpp"
#include "engine/engine.hpp"

namespace kvdrive {

class HostMemory final : public EngineMemory {
 public:
  std::span<std::byte> use(std::uint64_t bytes) override {
    bytes_ = bytes;
    beats_.resize(std::max<std::size_t>(beats_.size(), (bytes + abi::kBeatBytes - 1) / abi::kBeatBytes));
    return used();
  }
  std::span<std::byte> used() override { return {reinterpret_cast<std::byte*>(beats_.data()), bytes_}; }

 private:
  struct alignas(abi::kBeatBytes) Beat {
    std::byte bytes[abi::kBeatBytes];
  };
  std::vector<Beat> beats_;  // never shrinks: fresh memory costs as much as a copy
  std::uint64_t bytes_ = 0;
};

}  // namespace kvdrive
