// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/groups.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <mutex>
#include <vector>

#include "common/abi.hpp"
#include "engine/fast/argtopk.hpp"
#include "engine/fast/exact.hpp"
#include "engine/fast/softmax.hpp"
#include "engine/shapes.hpp"

namespace kvdrive::fast {
namespace {

constexpr std::uint32_t kForcedKey = 0x7f7fffff;
constexpr std::int64_t kQueryLimit = 127;
constexpr std::size_t kSpansAtOnce = 16;
constexpr std::size_t kChannelBytes = kSpanTokens / 4 + 2;  // of a span: 2 bits a token, lowest value and step

std::uint32_t check(const abi::GroupChoiceJob& job) {
  std::uint32_t status = bit_if(job.version != abi::kAbiVersion, abi::kBadVersion);
  status |= check_group(job.group) | check_head_dim(job.head_dim);
  status |= check_tokens(std::uint64_t{job.tokens} + job.inline_tokens);
  status |= bit_if(!is_finite_single(job.scale_log2e), abi::kBadScale);
  status |= bit_if(job.tokens == 0 || job.tokens % kSpanTokens != 0, abi::kBadLength);
  const bool exponent = job.exponent >= abi::kMinIndexExponent && job.exponent <= abi::kMaxIndexExponent;
  if (!exponent) status |= abi::kBadExponent;
  if (std::ranges::find(abi::kUnitTokens, job.unit) == std::end(abi::kUnitTokens)) return status | abi::kBadUnit;
  return status | bit_if(job.k_top < 1 || job.k_top > ceil_div(job.tokens, job.unit), abi::kBadK);
}

// The queries as small integers: fixed(q) is close to q8 * 2^shift.
struct SmallQueries {
  const unsigned padded;                      // positions of a head in `paired`
  std::vector<std::int16_t> natural, paired;  // see SpanQuery
  std::vector<int> shift;

  SmallQueries(const std::uint16_t* q, unsigned g, unsigned d)
      : padded(span_words(d) * kSpanWordCodes), natural(std::size_t{g} * d), paired(std::size_t{g} * padded), shift(g) {
    for (unsigned h = 0; h < g; ++h) {
      std::int64_t top = 0;
      for (unsigned i = 0; i < d; ++i) top = std::max(top, std::abs(fixed(q[h * d + i])));
      while (top > kQueryLimit << shift[h]) ++shift[h];
      for (unsigned i = 0; i < d; ++i) {
        natural[h * d + i] = rounded(fixed(q[h * d + i]), shift[h]);
        paired[h * padded + paired_position(i)] = natural[h * d + i];
      }
    }
  }

  // value / 2^shift to the nearest integer, ties to even.
  static std::int16_t rounded(std::int64_t value, int shift) {
    const std::int64_t magnitude = std::abs(value), below = (std::int64_t{1} << shift) - 1;
    const std::int64_t down = magnitude >> shift, rest = 2 * (magnitude & below);
    const bool up = rest > below + 1 || (rest == below + 1 && down % 2 != 0);
    return static_cast<std::int16_t>(value < 0 ? -(down + up) : down + up);
  }
};

// The spans of the index, which follow one another across the borders of pages.
class IndexSpans {
 public:
  // A span that two pages share, in one piece.
  using Joined = std::array<std::byte, kChannelBytes * abi::kMaxHeadDim>;

  // `pages`: empty if the index is in one piece, `whole`.
  IndexSpans(std::span<const std::byte* const> pages, const std::byte* whole, unsigned head_dim)
      : pages_(pages), whole_(whole), bytes_(kChannelBytes * head_dim) {}

  const std::uint8_t* at(std::size_t span, Joined& joined) const {
    return reinterpret_cast<const std::uint8_t*>(find(span * bytes_, joined));
  }

 private:
  const std::byte* find(std::size_t from, Joined& joined) const {
    if (pages_.empty()) return whole_ + from;
    const std::size_t page = from / abi::kPageBytes, in_page = from % abi::kPageBytes;
    if (in_page + bytes_ <= abi::kPageBytes) return pages_[page] + in_page;
    const std::size_t first = abi::kPageBytes - in_page;
    std::memcpy(joined.data(), pages_[page] + in_page, first);
    std::memcpy(joined.data() + first, pages_[page + 1], bytes_ - first);
    return joined.data();
  }

  const std::span<const std::byte* const> pages_;
  const std::byte* const whole_;
  const std::size_t bytes_;
};

class Choice {
 public:
  Choice(const Context& context, const abi::GroupChoiceJob& job, std::span<std::byte> memory,
         std::span<const std::byte* const> index)
      : context_(context),
        kernels_(context.kernels),
        job_(job),
        memory_(memory),
        index_(index, memory.data() + job.index, job.head_dim),
        units_(ceil_div(job.tokens, job.unit)),
        stride_(head_stride(std::size_t{job.tokens} + job.inline_tokens)),
        mass_(units_ * job.group) {
    scores_ = context.scratch.room_for_scores(stride_ * job.group);
  }

  std::uint32_t run() {
    const std::uint16_t* const q = array<std::uint16_t>(job_.q);
    std::uint32_t status = bit_if(!any_token(), abi::kEmpty);
    if (!std::all_of(q, q + std::size_t{job_.group} * job_.head_dim, is_finite_half)) status |= abi::kNonFinite;
    std::vector<std::uint32_t> chosen;
    if (status == 0) {
      compute_scores(SmallQueries(q, job_.group, job_.head_dim));
      compute_masses();
      chosen = choose();
    }
    write(status, chosen);
    return status;
  }

 private:
  template <typename T>
  T* array(std::uint64_t address) const {
    return reinterpret_cast<T*>(memory_.data() + address);
  }

  bool masked() const { return job_.valid != 0; }
  bool is_valid(std::size_t token) const { return !masked() || bit(array<std::uint8_t>(job_.valid), token); }

  bool any_token() const {
    if (!masked() || job_.inline_tokens != 0) return true;
    for (std::size_t t = 0; t < job_.tokens; ++t) {
      if (is_valid(t)) return true;
    }
    return false;
  }

  // Scores of the indexed tokens (the lowest one for masked tokens), then those of the inline tokens, and the maximum.
  void compute_scores(const SmallQueries& queries) {
    const auto c = std::bit_cast<float>(job_.scale_log2e);
    std::mutex maxima;
    std::fill_n(max_, job_.group, INT32_MIN);
    share(context_.pool, job_.tokens / kSpanTokens, kSpansAtOnce, [&](unsigned, std::size_t first, std::size_t last) {
      IndexSpans::Joined joined;
      std::int32_t most[abi::kMaxCommandGroup];
      std::fill_n(most, job_.group, INT32_MIN);
      for (std::size_t span = first; span < last; ++span) {
        const std::uint8_t* const from = index_.at(span, joined);
        each_tile(job_.group, [&](unsigned begin, unsigned heads) {
          std::int32_t sums[kTileHeads * kSpanTokens];
          const SpanQuery query{&queries.natural[std::size_t{begin} * job_.head_dim],
                                &queries.paired[std::size_t{begin} * queries.padded], heads, job_.head_dim};
          kernels_.span_sums(query, from, sums);
          for (unsigned h = begin; h < begin + heads; ++h) {
            const float lsb = std::ldexp(1.0f, queries.shift[h] + job_.exponent - 50);
            std::int32_t* const x = scores_ + h * stride_ + span * kSpanTokens;
            kernels_.sums_to_scores(sums + (h - begin) * kSpanTokens, lsb, c, kSpanTokens, x);
            for (unsigned t = 0; masked() && t < kSpanTokens; ++t) {
              if (!is_valid(span * kSpanTokens + t)) x[t] = INT32_MIN;
            }
            most[h] = std::max(most[h], kernels_.max_score(x, kSpanTokens));
          }
        });
      }
      const std::lock_guard lock(maxima);
      for (unsigned h = 0; h < job_.group; ++h) max_[h] = std::max(max_[h], most[h]);
    });
    const std::size_t inline_stride = whole_beat_scores(job_.inline_tokens);
    for (unsigned h = 0; h < job_.group; ++h) {
      if (job_.inline_tokens != 0) {
        std::int32_t* const last = scores_ + h * stride_ + job_.tokens;
        std::memcpy(last, array<std::int32_t>(job_.inline_scores) + h * inline_stride,
                    job_.inline_tokens * sizeof *last);
        max_[h] = std::max(max_[h], kernels_.max_score(last, job_.inline_tokens));
      }
      max_[h] = ceil_score(max_[h]);
    }
  }

  static std::size_t whole_beat_scores(std::size_t count) {
    constexpr std::size_t kScores = abi::kBeatBytes / sizeof(std::int32_t);
    return ceil_div(count, kScores) * kScores;
  }

  // Probabilities in place of the scores, the mass of each unit, and Z.
  void compute_masses() {
    share(context_.pool, units_, ceil_div(kSpansAtOnce * kSpanTokens, job_.unit),
          [&](unsigned, std::size_t first, std::size_t last) {
            for (std::size_t unit = first; unit < last; ++unit) {
              const std::size_t begin = unit * job_.unit, end = std::min<std::size_t>(begin + job_.unit, job_.tokens);
              for (unsigned h = 0; h < job_.group; ++h) mass_[h * units_ + unit] = mass(h, begin, end);
            }
          });
    for (unsigned h = 0; h < job_.group; ++h) {
      for (std::size_t unit = 0; unit < units_; ++unit) sum_[h] += mass_[h * units_ + unit];
      sum_[h] += probabilities(h, job_.tokens, std::size_t{job_.tokens} + job_.inline_tokens);
    }
  }

  // The mass of the valid tokens [begin, end), which are indexed.
  std::uint64_t mass(unsigned h, std::size_t begin, std::size_t end) {
    std::uint64_t sum = probabilities(h, begin, end);
    const auto* const p = reinterpret_cast<const std::uint32_t*>(scores_ + h * stride_);
    for (std::size_t t = begin; masked() && t < end; ++t) sum -= is_valid(t) ? 0 : p[t];
    return sum;
  }

  std::uint64_t probabilities(unsigned h, std::size_t begin, std::size_t end) {
    std::uint64_t sum = 0;
    for (std::size_t t = begin; t < end; t += kBlockTokens) {
      std::int32_t* const x = scores_ + h * stride_ + t;
      const auto n = static_cast<unsigned>(std::min<std::size_t>(end - t, kBlockTokens));
      sum += kernels_.probabilities(x, n, max_[h], reinterpret_cast<std::uint32_t*>(x));
    }
    return sum;
  }

  std::vector<std::uint32_t> choose() const {
    const std::uint64_t least = *std::min_element(sum_, sum_ + job_.group);
    std::vector<Integer> totals(units_);
    for (unsigned h = 0; h < job_.group; ++h) {
      const auto weight = static_cast<std::uint64_t>((Magnitude{least} << abi::kWeightBits) / sum_[h]);
      for (std::size_t unit = 0; unit < units_; ++unit) {
        totals[unit] += static_cast<Integer>(mass_[h * units_ + unit]) * weight;
      }
    }
    std::vector<std::uint32_t> order(units_);
    for (std::size_t unit = 0; unit < units_; ++unit) {
      order[unit] = order_of_single(to_single(to_sticky(totals[unit])));
    }
    order.front() = order.back() = order_of_single(kForcedKey);
    return largest_indices(order, job_.k_top);
  }

  void write(std::uint32_t status, const std::vector<std::uint32_t>& chosen) const {
    std::byte* const out = array<std::byte>(job_.out);
    std::memset(out, 0, bitmap_bytes(units_));
    for (const std::uint32_t unit : chosen) out[unit / 8] |= std::byte(1u << unit % 8);
    auto* const results = array<abi::GroupChoiceResult>(job_.result);
    for (unsigned i = 0; i < records_of(job_.group); ++i) {
      abi::GroupChoiceResult& record = results[i] = {};
      record.status = status;
      record.selected = static_cast<std::uint32_t>(chosen.size());
      for (unsigned slot = 0, h = i * abi::kMaxGroup; slot < abi::kMaxGroup && h < job_.group; ++slot, ++h) {
        if (status != 0) break;
        record.max[slot] = max_[h];
        record.sum[slot] = sum_[h];
        std::uint64_t read = 0, all = 0;
        for (const std::uint32_t unit : chosen) read += mass_[h * units_ + unit];
        for (std::size_t unit = 0; unit < units_; ++unit) all += mass_[h * units_ + unit];
        record.unread[slot] = all - read;
      }
    }
  }

  const Context& context_;
  const Kernels& kernels_;
  const abi::GroupChoiceJob& job_;
  const std::span<std::byte> memory_;
  const IndexSpans index_;
  const std::size_t units_;
  const std::size_t stride_;
  std::vector<std::uint64_t> mass_;  // [g][units]
  std::int32_t* scores_ = nullptr;   // [g][stride_]; probabilities after compute_masses
  std::int32_t max_[abi::kMaxCommandGroup] = {};
  std::uint64_t sum_[abi::kMaxCommandGroup] = {};
};

}  // namespace

std::uint32_t choose_groups(const Context& context, std::span<std::byte> memory, std::uint64_t job,
                            std::span<const std::byte* const> index) {
  abi::GroupChoiceJob fields;
  std::memcpy(&fields, memory.data() + job, sizeof fields);
  const std::uint32_t status = check(fields);
  return status != 0 ? status : Choice(context, fields, memory, index).run();
}

}  // namespace kvdrive::fast
