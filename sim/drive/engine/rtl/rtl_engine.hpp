// SPDX-License-Identifier: Apache-2.0
// Attention on the kernels' own hardware description: the verilated libraries of sim/rtl, one per group size.
//
// Single kernels and groups without a library are left to the compiled kernels and refused, in this order.
#pragma once

#include <filesystem>
#include <map>
#include <memory>

#include "engine/engine.hpp"

namespace kvdrive {

class RtlEngine final : public Engine {
 public:
  // Loads every <folder>/attention_g<group>/library-*.so. Throws std::runtime_error when there is none.
  explicit RtlEngine(const std::filesystem::path& folder);
  ~RtlEngine() override;

  const char* name() const override { return "rtl"; }
  // kBadGroup for a group without a library. Throws std::runtime_error when the simulation gets stuck.
  std::uint32_t attention(std::span<std::byte> memory, std::uint64_t job) override;

  ArgtopkResult argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type) override {
    return compiled_->argtopk(keys, n, k, type);
  }
  FilterResult page_filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap,
                           std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t page_bytes) override {
    return compiled_->page_filter(pages, bitmap, rows, row_bytes, page_bytes);
  }
  std::uint32_t gemv_rows(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t d,
                          std::uint32_t tokens, std::uint32_t* dots) override {
    return compiled_->gemv_rows(q, k, g, d, tokens, dots);
  }
  std::uint32_t gemv_columns(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t r,
                             std::uint32_t tokens, std::uint32_t* dots) override {
    return compiled_->gemv_columns(q, k, g, r, tokens, dots);
  }
  std::uint32_t gemv_accumulate(const std::uint32_t* p, const std::uint16_t* v, std::uint32_t g, std::uint32_t d,
                                std::uint32_t tokens, Wide* acc) override {
    return compiled_->gemv_accumulate(p, v, g, d, tokens, acc);
  }
  SoftmaxResult softmax(std::span<const std::int32_t> dense, const std::uint8_t* valid,
                        std::span<const std::int32_t> tail) override {
    return compiled_->softmax(dense, valid, tail);
  }

 private:
  class Kernel;

  std::map<std::uint32_t, std::unique_ptr<Kernel>> kernels_;  // by group
  std::unique_ptr<Engine> compiled_ = make_hls_engine();
};

}  // namespace kvdrive
