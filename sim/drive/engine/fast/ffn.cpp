// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/ffn.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "engine/fast/dots.hpp"
#include "engine/fast/exact.hpp"
#include "engine/fast/rounding.hpp"

namespace kvdrive::fast {
namespace {

constexpr float kLog2E = 0x1.715476p+0f;
constexpr std::uint32_t kOne = 1U << abi::kPFractionBits;
constexpr std::size_t kColumnsAtOnce = 256;

// a[i] = fl32(gate[i] * sigmoid(gate[i])). n <= kBlockTokens.
void silu(const Kernels& kernels, const float* gate, unsigned n, float* a) {
  std::int32_t exponents[kBlockTokens];
  std::uint32_t p[kBlockTokens];
  for (unsigned i = 0; i < n; ++i) exponents[i] = -unbias_score(biased_score(std::fabs(gate[i]), kLog2E));
  kernels.probabilities(exponents, n, 0, p);
  for (unsigned i = 0; i < n; ++i) {
    const std::uint32_t numerator = gate[i] < 0 ? p[i] : kOne;
    a[i] = gate[i] * static_cast<float>(sticky_ratio(Integer{numerator}, std::uint64_t{kOne} + p[i]));
  }
}

// The hidden activations h of all tokens, [tokens][neurons] binary16.
class Hidden {
 public:
  Hidden(const Context& context, const FfnBlock& block)
      : context_(context), block_(block), query_(context.kernels, block.x, block.tokens, block.hidden) {}

  // Fills h. Returns false for an Inf or NaN in x, the rows or h.
  bool compute(std::uint16_t* h) const {
    std::atomic<bool> finite{query_.finite};
    if (!finite) return false;
    share(context_.pool, ceil_div(block_.neurons, kBlockTokens), 1, [&](unsigned, std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        const std::size_t begin = i * kBlockTokens;
        const auto n = static_cast<unsigned>(std::min<std::size_t>(kBlockTokens, block_.neurons - begin));
        if (!compute_block(begin, n, h)) finite = false;
      }
    });
    return finite;
  }

 private:
  using Values = std::vector<float>;  // [tokens][kBlockTokens]

  bool project(std::size_t begin, unsigned n, unsigned matrix, Values& out) const {
    const Dots<SingleRounding> unit(context_.kernels, query_, {}, context_.statistics);
    const std::uint16_t *rows[kBlockTokens], *ahead[kBlockTokens];
    for (unsigned t = 0; t < n; ++t) {
      rows[t] = block_.row(begin + t, matrix);
      ahead[t] = block_.row(std::min<std::size_t>(begin + t + kBlockTokens, block_.neurons - 1), matrix);
    }
    return unit.rows({rows, ahead}, n, out.data(), kBlockTokens) == 0;
  }

  bool compute_block(std::size_t begin, unsigned n, std::uint16_t* h) const {
    Values up(std::size_t{block_.tokens} * kBlockTokens), gate;
    if (!project(begin, n, block_.matrices - 2, up)) return false;
    if (block_.matrices == 3) {
      gate.resize(up.size());
      if (!project(begin, n, 0, gate)) return false;
    }
    bool finite = true;
    for (std::size_t token = 0; token < block_.tokens; ++token) {
      float a[kBlockTokens];
      activate(token, begin, n, gate.data() + token * kBlockTokens, a);
      for (unsigned i = 0; i < n; ++i) {
        const std::uint16_t found = single_to_half(a[i] * up[token * kBlockTokens + i]);
        finite &= is_finite_half(found);
        h[token * block_.neurons + begin + i] = found;
      }
    }
    return finite;
  }

  void activate(std::size_t token, std::size_t begin, unsigned n, const float* gate, float* a) const {
    if (block_.activation == nvme::kFfnSilu) {
      silu(context_.kernels, gate, n, a);
    } else if (block_.activation == nvme::kFfnRelu) {
      for (unsigned i = 0; i < n; ++i) a[i] = gate[i] > 0 ? gate[i] : 0.0f;
    } else {
      const std::uint16_t* given = block_.activations + token * block_.activation_stride + begin;
      for (unsigned i = 0; i < n; ++i) a[i] = static_cast<float>(fixed(given[i])) * 0x1p-24f;
    }
  }

  const Context& context_;
  const FfnBlock& block_;
  Query query_;
};

// Exact sums over neurons for some columns. An h is mantissa << shift; the accumulators are those of its sign and of
// the upper or lower half of its shifts, so that each product fits the words of `add_exact`.
class Columns {
 public:
  explicit Columns(unsigned count) : count_(count), words_(std::size_t{kClasses} * 2 * count) {}

  void add(const Kernels& kernels, std::uint16_t h, const std::uint16_t* row, FfnSum* sums) {
    const int exponent = h >> 10 & 31;
    const std::uint32_t mantissa = (h & 0x3ffU) | (exponent != 0 ? 0x400U : 0U);
    if (mantissa == 0) return;
    const int shift = std::max(exponent - 1, 0);
    const bool upper = shift >= kHalf;
    const std::size_t of_class = (h >> 15 != 0 ? 2U : 0U) + (upper ? 1U : 0U);
    std::int64_t* const high = words_.data() + of_class * 2 * count_;
    kernels.add_exact(mantissa << (upper ? shift - kHalf : shift), row, count_, high, high + count_);
    if (++added_ == kExactRun) flush(sums);
  }

  void flush(FfnSum* sums) {
    for (std::size_t of_class = 0; of_class < kClasses; ++of_class) {
      std::int64_t* const high = words_.data() + of_class * 2 * count_;
      for (unsigned j = 0; j < count_; ++j) {
        const Integer sum = ((Integer{high[j]} << kExactSplit) + high[count_ + j]) << (of_class % 2 * kHalf);
        sums[j] += of_class >= 2 ? -sum : sum;
      }
    }
    std::ranges::fill(words_, 0);
    added_ = 0;
  }

 private:
  static constexpr std::size_t kClasses = 4;
  static constexpr int kHalf = 15;  // shifts are 0 to 29

  unsigned count_;
  std::vector<std::int64_t> words_;  // [class][high, low][count]
  unsigned added_ = 0;
};

void add_down(const Context& context, const FfnBlock& block, const std::uint16_t* h, std::size_t stride, FfnSum* sums) {
  const std::size_t parts = ceil_div(block.hidden, kColumnsAtOnce);
  share(context.pool, block.tokens * parts, 1, [&](unsigned, std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const std::size_t token = i / parts, column = i % parts * kColumnsAtOnce;
      Columns columns(static_cast<unsigned>(std::min<std::size_t>(kColumnsAtOnce, block.hidden - column)));
      FfnSum* const to = sums + token * block.hidden + column;
      for (std::size_t neuron = 0; neuron < block.neurons; ++neuron) {
        columns.add(context.kernels, h[token * stride + neuron], block.row(neuron, block.matrices - 1) + column, to);
      }
      columns.flush(to);
    }
  });
}

bool down_is_finite(const FfnBlock& block) {
  for (std::size_t neuron = 0; neuron < block.neurons; ++neuron) {
    const std::uint16_t* row = block.row(neuron, block.matrices - 1);
    if (!std::all_of(row, row + block.hidden, is_finite_half)) return false;
  }
  return true;
}

bool given_is_finite(const FfnBlock& block) {
  for (std::size_t token = 0; token < block.tokens && block.activations != nullptr; ++token) {
    const std::uint16_t* given = block.activations + token * block.activation_stride;
    if (!std::all_of(given, given + block.neurons, is_finite_half)) return false;
  }
  return true;
}

}  // namespace

std::uint32_t ffn(const Context& context, const FfnBlock& block, FfnSum* sums) {
  if (!given_is_finite(block) || !down_is_finite(block)) return abi::kNonFinite;
  if (block.matrices == 1) {
    add_down(context, block, block.activations, block.activation_stride, sums);
    return 0;
  }
  std::vector<std::uint16_t> h(std::size_t{block.tokens} * block.neurons);
  if (!Hidden(context, block).compute(h.data())) return abi::kNonFinite;
  add_down(context, block, h.data(), block.neurons, sums);
  return 0;
}

}  // namespace kvdrive::fast
