// SPDX-License-Identifier: Apache-2.0
#include "prompt_attention.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "ggml_functions.hpp"
#include "halves.hpp"

namespace kvdrive::llama {
namespace {

constexpr std::uint32_t kQueries = 32;   // of a block
constexpr std::uint32_t kTileRows = 64;  // of K and V
constexpr std::uint32_t kMostHeads = 8;  // query heads of a block
constexpr std::uint16_t kHidden = 0xfc00;
constexpr float kLog2E = 1.44269504F;
constexpr float kNothing = std::numeric_limits<float>::lowest();  // maximum of no scores

constexpr std::uint32_t ceil_div(std::uint32_t n, std::uint32_t unit) { return (n + unit - 1) / unit; }

// The memory of a thread, and what it works on. Lanes: query heads times queries.
struct Block {
  std::uint32_t lanes = 0, k_dim = 0, v_dim = 0, rows = 0;  // rows: of the present tile
  float *q, *out;                                           // [dim][lanes]
  float* scores;                                            // [tile rows][lanes], then probabilities
  float *max, *sum, *change;  // [lanes]; change: factor of what was summed before the tile
  float *k, *v;               // [tile rows][dim]
  float* bias;                // [tile rows][queries]
  bool mixed = false;         // the tile has a bias
};

// ---- steps, for vectors of any size ----

#define KVDRIVE_INLINE inline __attribute__((always_inline))

template <typename V>
constexpr std::uint32_t kLanesOf = sizeof(V) / sizeof(float);

template <typename V>
KVDRIVE_INLINE V& at(float* numbers) {
  return *reinterpret_cast<V*>(numbers);
}
template <typename V>
KVDRIVE_INLINE const V& at(const float* numbers) {
  return *reinterpret_cast<const V*>(numbers);
}

// sums[kMany][2 vectors of lanes] += factors[i][step * factor_step] * lanes of step, for all steps.
template <typename V, std::uint32_t kMany>
KVDRIVE_INLINE void multiply_add(V (&sums)[kMany][2], const float* factors, std::size_t factor_stride,
                                 std::size_t factor_step, const float* of_step, std::size_t lanes,
                                 std::uint32_t steps) {
  for (std::uint32_t step = 0; step < steps; ++step) {
    const V first = at<V>(of_step + step * lanes), second = at<V>(of_step + step * lanes + kLanesOf<V>);
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < kMany; ++i) {
      const float factor = factors[i * factor_stride + step * factor_step];
      sums[i][0] += factor * first;
      sums[i][1] += factor * second;
    }
  }
}

template <typename V, std::uint32_t kMany>
KVDRIVE_INLINE void score(const Block& block) {
  for (std::uint32_t lane = 0; lane < block.lanes; lane += 2 * kLanesOf<V>) {
    for (std::uint32_t row = 0; row < kTileRows; row += kMany) {
      V sums[kMany][2] = {};
      multiply_add<V, kMany>(sums, block.k + std::size_t{row} * block.k_dim, block.k_dim, 1, block.q + lane,
                             block.lanes, block.k_dim);
      for (std::uint32_t i = 0; i < kMany; ++i) {
        float* to = block.scores + std::size_t{row + i} * block.lanes + lane;
        at<V>(to) = sums[i][0];
        at<V>(to + kLanesOf<V>) = sums[i][1];
      }
    }
  }
}

// 2 to the power x, 0 below the normal numbers. Precondition: x <= 1.
template <typename V, typename Words>
KVDRIVE_INLINE void power(V& x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: added to a number, it leaves the nearest integer in the low bits
  const V shifted = x + kMagic, f = x - (shifted - kMagic);
  V p = 1.5403530e-4F * f + 1.3333558e-3F;
  p = p * f + 9.6181291e-3F;
  p = p * f + 5.5504109e-2F;
  p = p * f + 2.4022651e-1F;
  p = p * f + 6.9314718e-1F;
  p = p * f + 1.0F;
  Words bits, exponent;
  std::memcpy(&bits, &p, sizeof bits);
  std::memcpy(&exponent, &shifted, sizeof exponent);
  bits += exponent << 23;
  std::memcpy(&p, &bits, sizeof p);
  x = x < -126.0F ? V{} : p;
}

// Turns scores into probabilities under the maximum so far.
template <typename V, typename Words>
KVDRIVE_INLINE void weigh(const Block& block) {
  for (std::uint32_t lane = 0; lane < block.lanes; lane += kLanesOf<V>) {
    float* const scores = block.scores + lane;
    const V before = at<V>(block.max + lane);
    V max = before;
    for (std::uint32_t row = 0; row < block.rows; ++row) {
      V& here = at<V>(scores + std::size_t{row} * block.lanes);
      if (block.mixed) here += at<V>(block.bias + row * kQueries + lane % kQueries);
      max = here > max ? here : max;
    }
    V change = before - max;
    power<V, Words>(change);
    V sum = {};
    for (std::uint32_t row = 0; row < block.rows; ++row) {
      V& here = at<V>(scores + std::size_t{row} * block.lanes);
      V p = here - max;
      power<V, Words>(p);
      here = p;
      sum += p;
    }
    at<V>(block.max + lane) = max;
    at<V>(block.change + lane) = change;
    at<V>(block.sum + lane) = at<V>(block.sum + lane) * change + sum;
  }
}

template <typename V, std::uint32_t kMany>
KVDRIVE_INLINE void collect(const Block& block) {
  for (std::uint32_t lane = 0; lane < block.lanes; lane += 2 * kLanesOf<V>) {
    const V first = at<V>(block.change + lane), second = at<V>(block.change + lane + kLanesOf<V>);
    for (std::uint32_t d = 0; d < block.v_dim; d += kMany) {
      V sums[kMany][2];
      for (std::uint32_t i = 0; i < kMany; ++i) {
        const float* from = block.out + std::size_t{d + i} * block.lanes + lane;
        sums[i][0] = at<V>(from) * first;
        sums[i][1] = at<V>(from + kLanesOf<V>) * second;
      }
      multiply_add<V, kMany>(sums, block.v + d, 1, block.v_dim, block.scores + lane, block.lanes, block.rows);
      for (std::uint32_t i = 0; i < kMany; ++i) {
        float* to = block.out + std::size_t{d + i} * block.lanes + lane;
        at<V>(to) = sums[i][0];
        at<V>(to + kLanesOf<V>) = sums[i][1];
      }
    }
  }
}

template <typename V, typename Words, std::uint32_t kMany>
KVDRIVE_INLINE void add_tile(const Block& block) {
  score<V, kMany>(block);
  weigh<V, Words>(block);
  collect<V, kMany>(block);
}

template <unsigned kBytes>
struct Vectors {
  typedef float Numbers __attribute__((vector_size(kBytes), may_alias));
  typedef std::uint32_t Words __attribute__((vector_size(kBytes), may_alias));
};

using AddTile = void (*)(const Block&);

void add_tile_of_any(const Block& block) { add_tile<Vectors<16>::Numbers, Vectors<16>::Words, 4>(block); }
#if defined(__x86_64__)
__attribute__((target("avx512f"))) void add_tile_avx512(const Block& block) {
  add_tile<Vectors<64>::Numbers, Vectors<64>::Words, 8>(block);
}
__attribute__((target("avx2,fma"))) void add_tile_avx2(const Block& block) {
  add_tile<Vectors<32>::Numbers, Vectors<32>::Words, 4>(block);
}
#endif

AddTile choose_add_tile() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return add_tile_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return add_tile_avx2;
#endif
  return add_tile_of_any;
}

// ---- one block of queries and query heads ----

struct Part {
  std::uint32_t head = 0, first_in_group = 0, heads = 0;  // KV head; its query heads
  std::uint32_t block = 0, queries = 0;
};

class Worker {
 public:
  Worker(const Prompt& prompt, AddTile add_tile) : prompt_(prompt), add_tile_(add_tile) {
    const std::size_t lanes = std::size_t{std::min(prompt.group, kMostHeads)} * kQueries;
    const std::size_t sizes[] = {
        lanes * prompt.k_dim,     lanes * prompt.v_dim,     lanes * kTileRows,   lanes, lanes, lanes,
        kTileRows * prompt.k_dim, kTileRows * prompt.v_dim, kTileRows * kQueries};
    float** const arrays[] = {&block_.q,      &block_.out, &block_.scores, &block_.max, &block_.sum,
                              &block_.change, &block_.k,   &block_.v,      &block_.bias};
    std::size_t all = 0;
    for (const std::size_t size : sizes) all += size;
    memory_.resize(all + kAlignment);
    float* next = aligned(memory_.data());
    for (std::size_t i = 0; i < std::size(sizes); ++i) next = (*arrays[i] = next) + sizes[i];
    block_.k_dim = prompt.k_dim;
    block_.v_dim = prompt.v_dim;
  }

  void run(const Part& part) {
    begin(part);
    for (std::uint32_t tile = 0; tile * kTileRows < prompt_.rows; ++tile) {
      const auto seen = prompt_.mask == nullptr ? PromptMask::Tile::kOpen : prompt_.mask->tile(part.block, tile);
      if (seen == PromptMask::Tile::kHidden) continue;
      const std::uint32_t first = tile * kTileRows;
      block_.rows = std::min(kTileRows, prompt_.rows - first);
      widen(prompt_.k, part.head, first, prompt_.k_dim, block_.k);
      widen(prompt_.v, part.head, first, prompt_.v_dim, block_.v);
      block_.mixed = seen == PromptMask::Tile::kMixed;
      if (block_.mixed) place_bias(part, first);
      add_tile_(block_);
    }
    end(part);
  }

 private:
  static constexpr std::size_t kAlignment = 16;  // numbers, the largest vector

  static float* aligned(float* memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    return memory + (kAlignment - address / sizeof(float) % kAlignment) % kAlignment;
  }

  void begin(const Part& part) {
    block_.lanes = part.heads * kQueries;
    std::fill_n(block_.q, std::size_t{block_.lanes} * prompt_.k_dim, 0.0F);
    std::fill_n(block_.out, std::size_t{block_.lanes} * prompt_.v_dim, 0.0F);
    std::fill_n(block_.max, block_.lanes, kNothing);
    std::fill_n(block_.sum, block_.lanes, 0.0F);
    const float scale = prompt_.scale * kLog2E;
    each_lane(part, [&](std::uint32_t lane, std::uint32_t head, std::uint32_t query) {
      const float* from = prompt_.q + query * prompt_.q_query + head * prompt_.q_head;
      for (std::uint32_t d = 0; d < prompt_.k_dim; ++d)
        block_.q[std::size_t{d} * block_.lanes + lane] = from[d] * scale;
    });
  }

  void end(const Part& part) const {
    each_lane(part, [&](std::uint32_t lane, std::uint32_t head, std::uint32_t query) {
      float* to = prompt_.out + query * prompt_.out_query + std::size_t{head} * prompt_.v_dim;
      const float factor = block_.sum[lane] == 0 ? 0 : 1 / block_.sum[lane];
      for (std::uint32_t d = 0; d < prompt_.v_dim; ++d)
        to[d] = block_.out[std::size_t{d} * block_.lanes + lane] * factor;
    });
  }

  template <typename Use>
  void each_lane(const Part& part, Use use) const {
    for (std::uint32_t head = 0; head < part.heads; ++head) {
      for (std::uint32_t query = 0; query < part.queries; ++query) {
        use(head * kQueries + query, part.head * prompt_.group + part.first_in_group + head,
            part.block * kQueries + query);
      }
    }
  }

  void widen(const std::uint16_t* rows, std::uint32_t head, std::uint32_t first, std::uint32_t dim, float* to) const {
    const std::size_t count = std::size_t{block_.rows} * dim;
    to_singles(rows + (std::size_t{head} * prompt_.rows + first) * dim, count, to);
    std::fill(to + count, to + std::size_t{kTileRows} * dim, 0.0F);
  }

  void place_bias(const Part& part, std::uint32_t first) {
    std::fill_n(block_.bias, kTileRows * kQueries, 0.0F);
    float wide[kTileRows];
    for (std::uint32_t query = 0; query < part.queries; ++query) {
      to_singles(prompt_.mask->row(part.block * kQueries + query) + first, block_.rows, wide);
      for (std::uint32_t row = 0; row < block_.rows; ++row) block_.bias[row * kQueries + query] = wide[row] * kLog2E;
    }
  }

  const Prompt& prompt_;
  AddTile add_tile_;
  Block block_{};
  std::vector<float> memory_;
};

std::vector<Part> cut(const Prompt& prompt) {
  std::vector<Part> parts;
  for (std::uint32_t head = 0; head < prompt.heads; ++head) {
    for (std::uint32_t in_group = 0; in_group < prompt.group; in_group += kMostHeads) {
      for (std::uint32_t block = 0; block * kQueries < prompt.queries; ++block) {
        parts.push_back({.head = head,
                         .first_in_group = in_group,
                         .heads = std::min(kMostHeads, prompt.group - in_group),
                         .block = block,
                         .queries = std::min(kQueries, prompt.queries - block * kQueries)});
      }
    }
  }
  return parts;
}

}  // namespace

PromptMask::PromptMask(const std::uint16_t* numbers, std::size_t stride, std::uint32_t queries, std::uint32_t rows)
    : numbers_(numbers), stride_(stride), per_block_(ceil_div(rows, kTileRows)) {
  for (std::uint32_t block = 0; block < queries; block += kQueries) {
    for (std::uint32_t tile = 0; tile < rows; tile += kTileRows) {
      const std::uint32_t last = std::min(tile + kTileRows, rows);
      std::uint32_t hidden = 0, open = 0, all = 0;
      for (std::uint32_t query = block; query < std::min(block + kQueries, queries); ++query) {
        for (std::uint32_t i = tile; i < last; ++i) {
          hidden += row(query)[i] == kHidden ? 1 : 0;
          open += row(query)[i] == 0 ? 1 : 0;
        }
        all += last - tile;
      }
      tiles_.push_back(hidden == all ? Tile::kHidden : open == all ? Tile::kOpen : Tile::kMixed);
    }
  }
}

PromptAttention::PromptAttention() = default;
PromptAttention::~PromptAttention() = default;

void PromptAttention::run(const Prompt& prompt, int threads) {
  static const AddTile add_tile = choose_add_tile();
  const auto workers = static_cast<unsigned>(std::max(1, threads));
  if (!pool_ || pool_->workers() != workers) pool_ = std::make_unique<fast::Pool>(workers);
  const std::vector<Part> parts = cut(prompt);
  std::atomic<std::size_t> next = 0;
  pool_->run(workers, [&](unsigned) {
    std::size_t part = next.fetch_add(1, std::memory_order_relaxed);
    if (part >= parts.size()) return;
    Worker worker(prompt, add_tile);
    for (; part < parts.size(); part = next.fetch_add(1, std::memory_order_relaxed)) worker.run(parts[part]);
  });
}

}  // namespace kvdrive::llama
