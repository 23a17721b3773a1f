// SPDX-License-Identifier: Apache-2.0
// One FLASH_ATTN_EXT of llama.cpp's graph over a cache in the drive.
//
// A few queries go to the drive, which reads the rows that they see and sends results. A prompt's many queries are
// computed here, over rows that are read once for all of them: by a kernel of ours, or by llama.cpp's own where scores
// have soft caps, sinks or biases.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "host_graph.hpp"
#include "kv_cache.hpp"
#include "prompt_attention.hpp"

namespace kvdrive::llama {

// The fields of a FLASH_ATTN_EXT.
struct AttentionNode {
  const ggml_tensor *node, *q, *k, *v, *mask, *sinks;
  std::uint32_t queries, heads, kv_heads, group, streams, cells, k_dim, v_dim;
  float scale, max_bias, soft_cap;

  explicit AttentionNode(const ggml_tensor* node);

  const float* query(std::uint32_t stream, std::uint32_t query, std::uint32_t head) const;
  // [cells] binary16. Precondition: there is a mask.
  const std::uint16_t* mask_row(std::uint32_t stream, std::uint32_t query) const;
  float* out(std::uint32_t stream, std::uint32_t query) const;  // [heads][v_dim]
};

class Attention {
 public:
  explicit Attention(SessionDrive& drive) : drive_(drive) {}

  // Throws std::runtime_error with a sentence if the graph cannot be served, whatever its cache holds.
  static void check(const ggml_tensor* node, KvCache& cache);
  // Computes the node. Returns true if the drive computed it, false if this processor did. Throws std::runtime_error
  // with a sentence when the drive or ggml fails.
  bool run(const ggml_tensor* node, KvCache& cache, int threads);

  HostGraph& host() { return host_; }

 private:
  // The tokens that a query sees.
  struct Visible {
    std::uint32_t tokens = 0;  // the last one and all before it
    std::uint32_t count = 0;
    std::vector<std::byte> bitmap{};  // empty: all of `tokens`
  };
  // The tokens that some query of a stream sees, and the mask over them.
  struct Rows {
    bool by_cell = false;                                       // row i is cell i; the node's own mask fits
    std::vector<std::pair<std::uint32_t, std::uint32_t>> runs;  // first token, tokens
    std::uint32_t count = 0;
    std::vector<std::uint16_t> mask;    // [queries][count]
    std::optional<PromptMask> tiles{};  // of either mask
  };

  // What the layers of a batch share: the masks, and so the tokens, are the same in all layers of a cache.
  struct Seen {
    std::uint64_t epoch = 0;
    std::map<std::pair<const void*, std::uint32_t>, Visible> visible{};  // by the mask's row and the stream
    std::map<std::pair<const void*, std::uint32_t>, Rows> rows{};        // by the mask and the stream
  };

  Seen& seen_of(const KvCache& cache);
  // The streams of a node are those of its cache from `first_stream` on.
  static const Visible* visible(const AttentionNode& op, const CellLog& log, std::uint32_t stream, std::uint32_t query,
                                Seen& seen);
  static Rows& rows(const AttentionNode& op, const KvCache& cache, std::uint32_t first_stream, std::uint32_t stream,
                    Seen& seen);
  static Rows choose_rows(const AttentionNode& op, const CellLog& log, std::uint32_t stream);

  bool run_in_drive(const AttentionNode& op, KvCache& cache, std::uint32_t first_stream, Seen& seen);
  void run_in_host(const AttentionNode& op, KvCache& cache, std::uint32_t first_stream, std::uint32_t stream,
                   Seen& seen, int threads);
  // True if our own kernel computes it.
  static bool in_blocks(const AttentionNode& op);
  // Attends from some KV heads, whose rows are in k_ and v_.
  void run_in_blocks(const AttentionNode& op, std::uint32_t stream, Rows& rows, std::uint32_t first_head,
                     std::uint32_t heads, int threads);
  void read_rows(const KvCache& cache, const KvCache::Tensor& tensor, std::uint32_t stream, const Rows& rows,
                 std::uint32_t first_head, std::uint32_t heads, std::vector<std::uint16_t>& out);

  SessionDrive& drive_;
  HostGraph host_;
  PromptAttention prompts_;
  std::map<const KvCache*, Seen> seen_;  // a model with windows has two caches, whose layers alternate
  std::vector<std::uint16_t> k_, v_;
  std::vector<float> out_;
};

}  // namespace kvdrive::llama
