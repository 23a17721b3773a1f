// SPDX-License-Identifier: Apache-2.0
// Single operations on ggml's own CPU backend, over rows that were read from the drive: attention that the drive does
// not compute (prompts, soft caps, sinks, biases), and the rotation of K in a context shift. The kernels are those that
// llama.cpp uses without a drive, so the results are the same bits.
#pragma once

#include <cstdint>

#include "ggml_functions.hpp"

namespace kvdrive::llama {

// Part of one FLASH_ATTN_EXT: some KV heads of one stream. Rows are binary16.
struct HeadsAttention {
  const ggml_tensor* node = nullptr;
  std::uint32_t stream = 0;
  std::uint32_t first_head = 0, heads = 0;  // KV heads
  std::uint32_t rows = 0;
  std::uint16_t *k = nullptr, *v = nullptr;  // [heads][rows][dim]
  void* mask = nullptr;                      // [queries][rows] binary16; null: the node's has none
  float* out = nullptr;                      // [queries][heads * group][dim]
};

class HostGraph {
 public:
  HostGraph() = default;
  HostGraph(const HostGraph&) = delete;
  HostGraph& operator=(const HostGraph&) = delete;
  ~HostGraph();

  // Both throw std::runtime_error if ggml fails.
  void attend(const HeadsAttention& part, int threads);
  // Rotates rows of K in place as the ROPE `node` would, each by its shift.
  void rotate(const ggml_tensor* node, std::uint32_t rows, std::uint32_t row_bytes, std::uint16_t* k,
              const std::int32_t* shifts, int threads);

 private:
  void compute(ggml_context* context, ggml_tensor* result, int threads);

  ggml_backend_t backend_ = nullptr;
};

}  // namespace kvdrive::llama
