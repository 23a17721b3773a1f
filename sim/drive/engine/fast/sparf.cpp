// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/sparf.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/fast/argtopk.hpp"
#include "engine/fast/dots.hpp"
#include "engine/fast/exact.hpp"
#include "engine/fast/softmax.hpp"
#include "engine/shapes.hpp"

namespace kvdrive::fast {
namespace {

constexpr std::uint32_t kLocalKey = 0x7f7fffff;
constexpr std::uint32_t kMaskedKey = 0xff7fffff;

std::uint64_t magnitude(std::uint16_t h) { return static_cast<std::uint64_t>(fixed(h & 0x7fff)); }

// Rounds a sum with LSB 2^-24 to binary32.
float single_of(std::uint64_t sum) { return static_cast<float>(sum) * 0x1p-24f; }

void set_bits(const std::vector<std::uint32_t>& indices, std::byte* bitmap) {
  for (const std::uint32_t i : indices) bitmap[i >> 3] |= std::byte(1u << (i & 7));
}

// The values of q at the chosen rows, [g][r].
std::vector<std::uint16_t> gather_rows(const Job& job) {
  std::vector<std::uint16_t> chosen;
  chosen.reserve(std::size_t{job.g} * job.r);
  for (unsigned h = 0; h < job.g; ++h) {
    for (unsigned i = 0; i < job.d; ++i) {
      if (bit(job.rows, i)) chosen.push_back(job.q[h * job.d + i]);
    }
  }
  return chosen;
}

class Choice {
 public:
  Choice(const Context& context, const Job& job)
      : context_(context),
        kernels_(context.kernels),
        job_(job),
        stride_(head_stride(std::size_t{job.tokens} + job.inline_tokens)) {
    scores_ = context.scratch.room_for_scores(stride_ * job.g);
  }

  std::uint32_t run() {
    std::uint32_t status = bit_if(!any_token(), abi::kEmpty);
    const auto* const q_end = job_.q + std::size_t{job_.g} * job_.d;
    if (!std::all_of(job_.q, q_end, is_finite_half) || !compute_scores()) status |= abi::kNonFinite;
    std::vector<std::uint32_t> chosen;
    if (status == 0) {
      compute_probabilities();
      chosen = choose();
    }
    write(status, chosen);
    return status;
  }

 private:
  bool any_token() const {
    for (std::uint32_t t = 0; t < job_.tokens; t += 64) {
      if (valid_word(job_, t) != 0) return true;
    }
    return job_.inline_tokens != 0;
  }

  std::uint32_t valid_lanes(std::size_t block) const {
    return static_cast<std::uint32_t>(valid_word(job_, static_cast<std::uint32_t>(block * abi::kLanes)));
  }

  // Computes the scores of all dense tokens (the lowest score for masked ones), then of the inline tokens. Returns
  // false if a valid token holds an Inf or NaN.
  bool compute_scores() {
    const std::vector<std::uint16_t> patterns = gather_rows(job_);
    const Query query(kernels_, patterns.data(), job_.g, job_.r);
    float c[abi::kMaxCommandGroup];
    for (unsigned h = 0; h < job_.g; ++h) {
      c[h] = std::bit_cast<float>(job_.result[h / abi::kMaxGroup].scale[h % abi::kMaxGroup]);
    }
    const Dots<ScoreRounding> dots(kernels_, query, {c}, context_.statistics);
    std::atomic<bool> finite{true};
    share_blocks([&](std::size_t block) {
      const BlockColumns columns(job_.k, job_.r, block, ceil_div(job_.tokens, abi::kLanes));
      const std::uint32_t valid = valid_lanes(block);
      std::int32_t* out = scores_ + block * abi::kLanes;
      if (dots.columns(columns.beats(), valid, lanes(block), out, stride_) != 0) finite = false;
      for (std::uint32_t left = inside(block) & ~valid; left != 0; left &= left - 1) {
        for (unsigned h = 0; h < job_.g; ++h) out[h * stride_ + std::countr_zero(left)] = INT32_MIN;
      }
    });
    for (unsigned h = 0; h < job_.g; ++h) {
      std::int32_t* head = scores_ + h * stride_;
      if (job_.inline_tokens != 0) {
        std::memcpy(head + job_.tokens, job_.inline_scores + h * job_.inline_stride,
                    job_.inline_tokens * sizeof(*head));
      }
      max_[h] = ceil_score(kernels_.max_score(head, std::size_t{job_.tokens} + job_.inline_tokens));
    }
    return finite;
  }

  // Computes probabilities in place of the scores (0 for masked tokens), and Z.
  void compute_probabilities() {
    std::atomic<std::uint64_t> z[abi::kMaxCommandGroup] = {};
    share_blocks([&](std::size_t block) {
      for (unsigned h = 0; h < job_.g; ++h) {
        std::uint32_t* p = head(h) + block * abi::kLanes;
        std::uint64_t sum =
            kernels_.probabilities(scores_ + h * stride_ + block * abi::kLanes, lanes(block), max_[h], p);
        for (std::uint32_t left = inside(block) & ~valid_lanes(block); left != 0; left &= left - 1) {
          sum -= p[std::countr_zero(left)];
          p[std::countr_zero(left)] = 0;
        }
        z[h].fetch_add(sum, std::memory_order_relaxed);
      }
    });
    for (unsigned h = 0; h < job_.g; ++h) {
      sum_[h] = z[h];
      const std::size_t end = std::size_t{job_.tokens} + job_.inline_tokens;
      for (std::size_t t = job_.tokens; t < end; t += kBlockTokens) {
        const auto n = static_cast<unsigned>(std::min<std::size_t>(end - t, kBlockTokens));
        sum_[h] += kernels_.probabilities(scores_ + h * stride_ + t, n, max_[h], head(h) + t);
      }
    }
  }

  // Returns the valid tokens among those with the k_top largest keys.
  std::vector<std::uint32_t> choose() {
    const std::uint64_t least = *std::min_element(sum_, sum_ + job_.g);
    std::uint64_t weight[abi::kMaxCommandGroup];
    for (unsigned h = 0; h < job_.g; ++h) {
      weight[h] = static_cast<std::uint64_t>((Magnitude{least} << abi::kWeightBits) / sum_[h]);
    }
    std::vector<float> keys(job_.tokens);
    kernels_.token_keys(head(0), stride_, weight, job_.g, job_.tokens, keys.data());
    std::vector<std::uint32_t> order(job_.tokens);
    for (std::uint32_t t = 0; t < job_.tokens; ++t) order[t] = order_of_single(std::bit_cast<std::uint32_t>(keys[t]));
    std::fill(order.end() - job_.local, order.end(), order_of_single(kLocalKey));
    if (job_.valid != nullptr) {
      for (std::uint32_t t = 0; t < job_.tokens; ++t) {
        if (!bit(job_.valid, t)) order[t] = order_of_single(kMaskedKey);
      }
    }
    std::vector<std::uint32_t> chosen = largest_indices(order, job_.k_top);
    std::erase_if(chosen, [&](std::uint32_t t) { return job_.valid != nullptr && !bit(job_.valid, t); });
    return chosen;
  }

  void write(std::uint32_t status, const std::vector<std::uint32_t>& chosen) {
    std::memset(job_.out, 0, job_.out_bytes);
    set_bits(chosen, job_.out);
    for (unsigned i = 0; i < records_of(job_.g); ++i) {
      abi::AttentionResult& record = job_.result[i];
      record.status = status;
      record.selected = static_cast<std::uint32_t>(chosen.size());
      for (unsigned slot = 0, h = i * abi::kMaxGroup; slot < abi::kMaxGroup; ++slot, ++h) {
        const bool used = status == 0 && h < job_.g;
        record.max[slot] = used ? max_[h] : 0;
        record.sum[slot] = used ? sum_[h] : 0;
        record.alpha[slot] = used ? to_single(sticky_ratio(chosen_mass(h, chosen), sum_[h])) : 0;
      }
    }
  }

  Integer chosen_mass(unsigned h, const std::vector<std::uint32_t>& chosen) {
    const std::uint32_t* p = head(h);
    std::uint64_t mass = 0;
    for (const std::uint32_t t : chosen) mass += p[t];
    for (std::size_t t = 0; t < job_.inline_tokens; ++t) mass += p[job_.tokens + t];
    return mass;
  }

  // A bit for each lane of the block that is a token of the job.
  std::uint32_t inside(std::size_t block) const { return ~std::uint32_t{0} >> (abi::kLanes - lanes(block)); }
  unsigned lanes(std::size_t block) const {
    return static_cast<unsigned>(std::min<std::size_t>(abi::kLanes, job_.tokens - block * abi::kLanes));
  }
  std::uint32_t* head(unsigned h) { return reinterpret_cast<std::uint32_t*>(scores_ + h * stride_); }

  template <typename Work>
  void share_blocks(Work work) {
    share(context_.pool, ceil_div(job_.tokens, abi::kLanes), kBlocksAtOnce,
          [&](unsigned, std::size_t first, std::size_t last) {
            for (std::size_t block = first; block < last; ++block) work(block);
          });
  }

  const Context& context_;
  const Kernels& kernels_;
  const Job& job_;
  std::size_t stride_;
  std::int32_t* scores_ = nullptr;  // [g][stride_]; probabilities after compute_probabilities
  std::int32_t max_[abi::kMaxCommandGroup] = {};
  std::uint64_t sum_[abi::kMaxCommandGroup] = {};
};

}  // namespace

std::uint32_t choose_rows(const Job& job) {
  const bool finite = std::all_of(job.q, job.q + std::size_t{job.g} * job.d, is_finite_half);
  std::uint32_t scale[abi::kMaxCommandGroup] = {};
  std::vector<std::uint32_t> chosen;
  if (finite) {
    std::vector<std::uint32_t> order(job.d);
    for (unsigned i = 0; i < job.d; ++i) {
      std::uint64_t sum = 0;
      for (unsigned h = 0; h < job.g; ++h) sum += magnitude(job.q[h * job.d + i]);
      order[i] = order_of_single(std::bit_cast<std::uint32_t>(single_of(sum)));
    }
    chosen = largest_indices(order, job.r);
    for (unsigned h = 0; h < job.g; ++h) {
      const std::uint16_t* q = job.q + h * job.d;
      std::uint64_t all = 0, kept = 0;
      for (unsigned i = 0; i < job.d; ++i) all += magnitude(q[i]);
      for (const std::uint32_t i : chosen) kept += magnitude(q[i]);
      const float ratio = std::sqrt(single_of(all) / single_of(kept));
      const float scaled = std::bit_cast<float>(job.scale_log2e) * ratio + 0.0f;
      scale[h] = kept == 0 ? job.scale_log2e : std::bit_cast<std::uint32_t>(scaled);
    }
  }
  std::memset(job.rows, 0, abi::kBeatBytes);
  set_bits(chosen, reinterpret_cast<std::byte*>(job.rows));
  const std::uint32_t status = bit_if(!finite, abi::kNonFinite);
  for (unsigned i = 0; i < records_of(job.g); ++i) {
    abi::AttentionResult& record = job.result[i];
    record.status = status;
    record.selected = static_cast<std::uint32_t>(chosen.size());
    std::memcpy(record.scale, scale + i * abi::kMaxGroup, sizeof(record.scale));
  }
  return status;
}

std::uint32_t choose_tokens(const Context& context, const Job& job) { return Choice(context, job).run(); }

}  // namespace kvdrive::fast
