// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/gemv.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

#include "engine/fast/dots.hpp"
#include "engine/fast/exact.hpp"

namespace kvdrive::fast {
namespace {

// Runs work(first token, number of tokens, out), which returns a bit per non-finite token, over blocks of `block`
// tokens.
template <typename Work>
std::uint32_t fill_dots(const Context& context, const Query& query, std::uint32_t tokens, unsigned block,
                        std::uint32_t* dots, Work work) {
  std::vector<float> values(std::size_t{query.g} * tokens);
  std::atomic<bool> finite{query.finite};
  if (finite) {
    share(context.pool, ceil_div(tokens, block), kBlocksAtOnce, [&](unsigned, std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        const auto n = static_cast<unsigned>(std::min<std::size_t>(block, tokens - i * block));
        if (work(i * block, n, values.data() + i * block) != 0) finite = false;
      }
    });
  }
  for (std::size_t i = 0; i < values.size(); ++i) dots[i] = finite ? std::bit_cast<std::uint32_t>(values[i]) : 0;
  return bit_if(!finite, abi::kNonFinite);
}

using Sums = std::vector<Integer>;

// Adds the exact weighted sum of at most kExactRun rows to acc[0 .. d).
void add_run(const Kernels& kernels, const std::uint32_t* p, const std::uint16_t* v, unsigned d, std::size_t n,
             Integer* acc) {
  std::int64_t high[abi::kMaxHeadDim] = {}, low[abi::kMaxHeadDim] = {};
  for (std::size_t t = 0; t < n; ++t) kernels.add_exact(p[t], v + t * d, d, high, low);
  for (unsigned j = 0; j < d; ++j) acc[j] += (static_cast<Integer>(high[j]) << kExactSplit) + low[j];
}

}  // namespace

std::uint32_t gemv_rows(const Context& context, const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g,
                        std::uint32_t d, std::uint32_t tokens, std::uint32_t* dots) {
  const std::uint32_t status = check_group(g) | check_head_dim(d) | check_tokens(tokens);
  if (status != 0) return status;
  const Query query(context.kernels, q, g, d);
  const Dots<SingleRounding> unit(context.kernels, query, {}, context.statistics);
  return fill_dots(context, query, tokens, kBlockTokens, dots, [&](std::size_t first, unsigned n, float* out) {
    const std::uint16_t *rows[kBlockTokens], *ahead[kBlockTokens];
    for (unsigned t = 0; t < n; ++t) {
      rows[t] = k + (first + t) * d;
      ahead[t] = k + std::min<std::size_t>(first + t + kBlockTokens, tokens - 1) * d;
    }
    return unit.rows({rows, ahead}, n, out, tokens);
  });
}

std::uint32_t gemv_columns(const Context& context, const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g,
                           std::uint32_t r, std::uint32_t tokens, std::uint32_t* dots) {
  const std::uint32_t status =
      check_group(g) | check_tokens(tokens) | bit_if(r < 1 || r > abi::kMaxHeadDim, abi::kBadR);
  if (status != 0) return status;
  const Query query(context.kernels, q, g, r);
  const Dots<SingleRounding> unit(context.kernels, query, {}, context.statistics);
  return fill_dots(context, query, tokens, abi::kLanes, dots, [&](std::size_t first, unsigned n, float* out) {
    const BlockColumns block(k, r, first / abi::kLanes, ceil_div(tokens, abi::kLanes));
    return unit.columns(block.beats(), (std::uint64_t{1} << n) - 1, n, out, tokens);
  });
}

std::uint32_t gemv_accumulate(const Context& context, const std::uint32_t* p, const std::uint16_t* v, std::uint32_t g,
                              std::uint32_t d, std::uint32_t tokens, Wide* acc) {
  const std::uint32_t status = check_group(g) | check_head_dim(d) | check_tokens(tokens);
  if (status != 0) return status;
  std::vector<Sums> sums(context.pool.workers(), Sums(std::size_t{g} * d));
  std::atomic<bool> finite{true};
  const unsigned workers =
      share(context.pool, tokens, kExactRun, [&](unsigned worker, std::size_t first, std::size_t last) {
        const std::uint16_t* rows = v + first * d;
        if (!std::all_of(rows, v + last * d, is_finite_half)) finite = false;
        for (std::size_t h = 0; h < g; ++h) {
          add_run(context.kernels, p + h * tokens + first, rows, d, last - first, sums[worker].data() + h * d);
        }
      });
  for (std::size_t i = 0; i < std::size_t{g} * d; ++i) {
    Integer sum = 0;
    for (unsigned worker = 0; worker < workers; ++worker) sum += sums[worker][i];
    acc[i] = finite ? to_wide(sum) : Wide{};
  }
  return bit_if(!finite, abi::kNonFinite);
}

}  // namespace kvdrive::fast
