// SPDX-License-Identifier: Apache-2.0
// Attention on the kernels' hardware description: the verilated libraries of sim/rtl, one per group size.
//
// The page filter is the compiled HLS kernel.
#pragma once

#include <filesystem>
#include <map>
#include <memory>

#include "engine/built_shapes.hpp"
#include "engine/engine.hpp"
#include "engine/hls/kernels.hpp"
#include "engine/host_memory.hpp"

namespace kvdrive {

class RtlEngine final : public Engine {
 public:
  // Loads every <folder>/attention_g<group>/library-*.so. Throws std::runtime_error when there is none.
  explicit RtlEngine(const std::filesystem::path& folder);
  ~RtlEngine() override;

  const char* name() const override { return "rtl"; }
  EngineMemory& memory() override { return memory_; }
  // Returns kBadGroup if there is no library for the group. Throws std::runtime_error when the simulation gets stuck.
  std::uint32_t attend(std::uint64_t job, const KvPages*) override { return shapes_.attend(memory_, job); }
  FilterResult filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap, std::uint32_t rows,
                      std::uint32_t row_bytes, std::uint32_t page_bytes) override {
    return hls::page_filter(pages, bitmap, rows, row_bytes, page_bytes);
  }

 private:
  class Kernel;
  std::uint32_t run(std::span<std::byte> memory, std::uint64_t job);

  std::map<std::uint32_t, std::unique_ptr<Kernel>> kernels_;  // by group size
  HostMemory memory_;
  BuiltShapes shapes_{[this](std::span<std::byte> memory, std::uint64_t job) { return run(memory, job); }};
};

}  // namespace kvdrive
