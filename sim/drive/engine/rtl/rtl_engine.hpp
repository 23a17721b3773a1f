// SPDX-License-Identifier: Apache-2.0
// Attention and the choice of units on the kernels' hardware description: the verilated libraries of sim/rtl, one per
// group size. The drive's processor makes a choice whose library is missing.
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
  // Loads every library-*.so in <folder>/attention_g<group> and <folder>/group_choice_g<group>. Throws
  // std::runtime_error when there is none for attention.
  explicit RtlEngine(const std::filesystem::path& folder);
  ~RtlEngine() override;

  const char* name() const override { return "rtl"; }
  EngineMemory& memory() override { return memory_; }
  // Returns kBadGroup if there is no library for the group. Throws std::runtime_error when the simulation gets stuck.
  std::uint32_t attend(std::uint64_t job, const KvPages*) override { return shapes_.attend(memory_, job); }
  std::uint32_t choose_groups(std::uint64_t job, std::span<const std::byte* const> index) override;
  FilterResult filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap, std::uint32_t rows,
                      std::uint32_t row_bytes, std::uint32_t page_bytes) override {
    return hls::page_filter(pages, bitmap, rows, row_bytes, page_bytes);
  }

 private:
  class Kernel;
  std::uint32_t run(std::span<std::byte> memory, std::uint64_t job);

  using Kernels = std::map<std::uint32_t, std::unique_ptr<Kernel>>;  // by group size

  Kernels kernels_;
  Kernels choosers_;
  HostMemory memory_;
  BuiltShapes shapes_{[this](std::span<std::byte> memory, std::uint64_t job) { return run(memory, job); }};
};

}  // namespace kvdrive
