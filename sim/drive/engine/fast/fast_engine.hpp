// SPDX-License-Identifier: Apache-2.0
// The vectorised engine: computes docs/arithmetic.md bit for bit, at the speed of memory.
#pragma once

#include <mutex>

#include "engine/engine.hpp"
#include "engine/fast/context.hpp"
#include "engine/fast/kernels.hpp"
#include "engine/fast/pool.hpp"
#include "engine/fast/statistics.hpp"
#include "engine/host_memory.hpp"
#include "engine/single_kernels.hpp"

namespace kvdrive::fast {

class FastEngine final : public SingleKernels, public Engine {
 public:
  explicit FastEngine(int threads);

  const char* name() const override { return "fast"; }
  const char* isa() const { return kernels_.name; }
  const Statistics& statistics() const { return statistics_; }

  // Computes at least `count` multiply-adds of binary64 numbers in registers, in the calling thread. Returns how many.
  std::uint64_t multiply_adds(std::uint64_t count) const;

  EngineMemory& memory() override { return memory_; }
  std::uint32_t attend(std::uint64_t job, const KvPages* pages) override { return run(memory_.used(), job, pages); }
  std::uint32_t choose_groups(std::uint64_t job, std::span<const std::byte* const> index) override {
    return choose_groups_in(memory_.used(), job, index);
  }
  std::uint32_t choose_groups_in(std::span<std::byte> memory, std::uint64_t job,
                                 std::span<const std::byte* const> index);
  std::uint32_t attend_in(std::span<std::byte> elsewhere, std::uint64_t job) override {
    return run(elsewhere, job, nullptr);
  }
  std::uint32_t ffn(const FfnBlock& block, FfnSum* sums) override;
  FilterResult filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap, std::uint32_t rows,
                      std::uint32_t row_bytes, std::uint32_t page_bytes) override {
    return page_filter(pages, bitmap, rows, row_bytes, page_bytes);
  }
  bool reads_pages() const override { return true; }
  unsigned threads() const override { return pool_.workers(); }
  std::uint64_t exact_sums() const override { return statistics_.dots_exact + statistics_.outputs_exact; }
  void with_threads(const std::function<void()>& work) override { pool_.with_workers(work); }

  std::uint32_t attention(std::span<std::byte> memory, std::uint64_t job) override { return run(memory, job, nullptr); }
  ArgtopkResult argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type) override;
  FilterResult page_filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap,
                           std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t page_bytes) override;
  std::uint32_t gemv_rows(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t d,
                          std::uint32_t tokens, std::uint32_t* dots) override;
  std::uint32_t gemv_columns(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t r,
                             std::uint32_t tokens, std::uint32_t* dots) override;
  std::uint32_t gemv_accumulate(const std::uint32_t* p, const std::uint16_t* v, std::uint32_t g, std::uint32_t d,
                                std::uint32_t tokens, Wide* acc) override;
  SoftmaxResult softmax(std::span<const std::int32_t> dense, const std::uint8_t* valid,
                        std::span<const std::int32_t> tail) override;

 private:
  std::uint32_t run(std::span<std::byte> memory, std::uint64_t address, const KvPages* pages);

  const Kernels& kernels_;
  Pool pool_;
  Statistics statistics_;
  Scratch scratch_;
  HostMemory memory_;
  std::mutex busy_;  // held by the job that uses the pool and the scratch memory
};

}  // namespace kvdrive::fast
