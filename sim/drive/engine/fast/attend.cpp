// SPDX-License-Identifier: Apache-2.0
// Two passes. The first computes all scores from K. The second computes probabilities under the maximum, and the
// weighted sum from V. K and V are read once each. Scores stay in the scratch memory, where probabilities replace them.
#include "engine/fast/attend.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "e4m3.hpp"
#include "engine/fast/aligned.hpp"
#include "engine/fast/dots.hpp"
#include "engine/fast/exact.hpp"
#include "engine/fast/softmax.hpp"
#include "engine/shapes.hpp"
#include "formats.hpp"

namespace kvdrive::fast {
namespace {

// The attended tokens in one numbering: first the valid dense tokens, then the inline tokens.
struct Tokens {
  const std::uint32_t* index;  // dense row of each token; null: rows equal tokens
  std::size_t dense;
  std::size_t total;

  // The number of attended tokens before dense row `row`.
  std::size_t up_to(std::size_t row) const {
    if (index == nullptr) return std::min(row, dense);
    return static_cast<std::size_t>(std::lower_bound(index, index + dense, row) - index);
  }
};

Tokens list_tokens(const Job& job, std::vector<std::uint32_t>& index) {
  if (job.valid == nullptr) return {nullptr, job.tokens, std::size_t{job.tokens} + job.inline_tokens};
  index.resize(job.tokens);
  std::size_t dense = 0;
  for (std::uint32_t first = 0; first < job.tokens; first += 64) {
    for (std::uint64_t left = valid_word(job, first); left != 0; left &= left - 1) {
      index[dense++] = first + static_cast<std::uint32_t>(std::countr_zero(left));
    }
  }
  return {index.data(), dense, dense + job.inline_tokens};
}

// Rows of K or V in memory: an array of binary16 numbers, or pages of rows in any format.
struct Rows {
  const std::uint16_t* array;
  const std::byte* const* pages;
  unsigned per_page;
  std::size_t first;  // number of the first row
  RowFormat format = nvme::kBinary16;

  const std::byte* at(std::size_t row, unsigned row_bytes) const {
    row -= first;
    if (pages == nullptr) return reinterpret_cast<const std::byte*>(array) + row * row_bytes;
    return pages[row / per_page] + row % per_page * row_bytes;
  }

  // Lists the addresses of the rows [row, row + n).
  void list(std::size_t row, unsigned n, unsigned row_bytes, const std::byte** to) const {
    if (pages == nullptr) {
      for (unsigned i = 0; i < n; ++i) to[i] = at(row + i, row_bytes);
      return;
    }
    row -= first;
    std::size_t number = row / per_page;
    for (unsigned i = 0, in_page = row % per_page; i < n; in_page = 0) {
      const std::byte* next = pages[number++] + std::size_t{in_page} * row_bytes;
      for (; i < n && in_page < per_page; ++i, ++in_page, next += row_bytes) to[i] = next;
    }
  }
};

// Attended tokens [first, last) whose rows are in memory: token t is row index[t], or t without an index.
struct Piece {
  Rows rows;
  const std::uint32_t* index;
  std::size_t first, last;
  abi::KvKind kind = abi::kKeys;
  std::span<const std::byte* const> pages{};  // pages to check; empty for an array
};

// The tokens [start, end) of a piece, at most one block: addresses of their stored rows.
struct Stored {
  const std::byte* rows[kBlockTokens];
  const std::byte*
      ahead[kBlockTokens];  // of the tokens behind them, to prefetch; at the end of the piece the same rows
  std::size_t first;
  unsigned n;

  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): clearing the arrays would cost as much as the arithmetic
  Stored(const Piece& piece, std::size_t start, std::size_t end, unsigned d)
      : first(start), n(static_cast<unsigned>(std::min<std::size_t>(end - start, kBlockTokens))) {
    const unsigned row_bytes = row_bytes_of(piece.rows.format, d);
    list(piece, first, n, row_bytes, rows);
    const auto behind = static_cast<unsigned>(std::min<std::size_t>(piece.last - (first + n), n));
    list(piece, first + n, behind, row_bytes, ahead);
    std::copy(rows + behind, rows + n, ahead + behind);
  }

 private:
  static void list(const Piece& piece, std::size_t first, unsigned n, unsigned row_bytes, const std::byte** to) {
    if (piece.index == nullptr) return piece.rows.list(first, n, row_bytes, to);
    for (unsigned i = 0; i < n; ++i) to[i] = piece.rows.at(piece.index[first + i], row_bytes);
  }
};

// How a block holds the numbers of a format that has no steps.
RowScale scale_of(RowFormat format) { return format == nvme::kFp8 ? RowScale{kE4m3Scale, 0x1p-9} : RowScale{}; }

RowFormat format_of(const Job& job) { return job.pages != nullptr ? job.pages->format() : nvme::kBinary16; }

// A block of binary16 rows where they lie, or of rows in e4m3 that were expanded to binary16 rows.
class Block {
 public:
  const std::uint16_t* rows[kBlockTokens];
  const std::uint16_t* ahead[kBlockTokens];
  std::size_t first;
  unsigned n;
  unsigned factor;  // the numbers are those of the rows times this

  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): clearing the array would cost as much as the arithmetic
  Block(const Kernels& kernels, const Piece& piece, std::size_t start, std::size_t end, unsigned d)
      : factor(static_cast<unsigned>(scale_of(piece.rows.format).factor)) {
    const Stored stored(piece, start, end, d);
    first = stored.first;
    n = stored.n;
    const bool expanded = piece.rows.format == nvme::kFp8;
    if (expanded) kernels.expand_e4m3(stored.rows, stored.ahead, n, d, expanded_);
    for (unsigned i = 0; i < n; ++i) {
      rows[i] = expanded ? expanded_ + std::size_t{i} * d : reinterpret_cast<const std::uint16_t*>(stored.rows[i]);
      ahead[i] = expanded ? rows[i] : reinterpret_cast<const std::uint16_t*>(stored.ahead[i]);
    }
  }
  RowsOfBlock with_ahead() const { return {rows, ahead}; }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

 private:
  alignas(abi::kBeatBytes) std::uint16_t expanded_[kBlockTokens * abi::kMaxHeadDim];
};

// A block of rows in INT8 or INT4.
class CodeBlock {
 public:
  const std::size_t first;
  const unsigned n;

  CodeBlock(const Kernels& kernels, const Piece& piece, std::size_t start, std::size_t end, unsigned d)
      : CodeBlock(kernels, piece.rows.format, Stored(piece, start, end, d), d) {}

  CodedRows rows() const { return {stored_.rows, stored_.ahead, n, d_, format_ == nvme::kInt4}; }

  // The binary16 numbers of a row, valid until the next call.
  const std::uint16_t* decoded(unsigned row) const {
    (format_ == nvme::kInt8 ? kernels_.decode_int8 : kernels_.decode_int4)(stored_.rows[row], d_, halves_);
    return halves_;
  }

 private:
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): clearing the arrays would cost as much as the arithmetic
  CodeBlock(const Kernels& kernels, RowFormat format, const Stored& stored, unsigned d)
      : first(stored.first), n(stored.n), kernels_(kernels), format_(format), stored_(stored), d_(d) {}

  const Kernels& kernels_;
  const RowFormat format_;
  const Stored stored_;
  const unsigned d_;
  mutable std::uint16_t halves_[abi::kMaxHeadDim];
};

constexpr unsigned kRecentBlocks = 16;  // blocks of binary16 rows whose sums are added before they reach `high`

// One worker's sums over V for each head. The unrounded sum is high + low + recent. Every binary16 number is rounded at
// most kBlockTokens times inside its block, and kRecentBlocks times with the blocks after it, in sums whose magnitudes
// total `magnitude`. Every other block adds at most two roundings.
struct Sums {
  AlignedDoubles high, low, recent;  // [g][d]
  std::size_t size;                  // g * d
  unsigned recent_blocks = 0;
  double magnitude[abi::kMaxCommandGroup] = {};
  double left_out[abi::kMaxCommandGroup] = {};  // bound on what blocks in 8 or 4 bits did not add
  std::uint64_t z[abi::kMaxCommandGroup] = {};
  double code_blocks = 0;

  explicit Sums(std::size_t numbers) : high(numbers), low(numbers), recent(numbers), size(numbers) {
    for (double* sums : {+high, +low, +recent}) std::fill_n(sums, size, 0.0);
  }

  // Moves `recent` to high and low.
  void flush(const Kernels& kernels) {
    kernels.add_twofold(recent, size, high, low);
    std::fill_n(+recent, size, 0.0);
    recent_blocks = 0;
  }

  // Counts tokens of head h with a sum of probabilities `sum` and numbers up to `largest`.
  void count(unsigned h, std::uint64_t sum, double largest) {
    z[h] += sum;
    magnitude[h] += static_cast<double>(sum) * largest;
  }

  void add(const Kernels& kernels, const Sums& other) {
    kernels.add_twofold(other.high, size, high, low);
    kernels.add_twofold(other.low, size, high, low);
    for (int h = 0; h < abi::kMaxCommandGroup; ++h) {
      magnitude[h] += other.magnitude[h];
      left_out[h] += other.left_out[h];
      z[h] += other.z[h];
    }
    code_blocks += other.code_blocks;
  }

  // Bound on the error of high + low. The additions to `low`, at most 2^13, cost less than one more rounding: |low|
  // stays below 2^12 * 2^-53 of the magnitude.
  double error(unsigned h) const {
    return (kBlockTokens + kRecentBlocks + 8 + 2 * code_blocks) * kUlp * magnitude[h] + (1 + 0x1p-20) * left_out[h];
  }
};

// A block in 8 or 4 bits may leave out this share of the magnitudes that were added so far.
constexpr double kLeftOut = 0x1p-46;

class Attention {
 public:
  Attention(const Context& context, const Job& job)
      : query_(context.kernels, job.q, job.g, job.d, scale_of(format_of(job))),
        context_(context),
        kernels_(context.kernels),
        job_(job),
        tokens_(list_tokens(job, context.scratch.index)),
        stride_(head_stride(tokens_.total)) {
    scores_ = context.scratch.room_for_scores(stride_ * job.g);
  }

  std::uint32_t run() {
    std::uint32_t status = bit_if(tokens_.total == 0, abi::kEmpty);
    if (!query_.finite || !compute_scores() || (status == 0 && !accumulate())) status |= abi::kNonFinite;
    write_record(status);
    if (status != 0) {
      std::memset(job_.out, 0, job_.out_bytes);
    } else {
      write_out();
    }
    return status;
  }

 private:
  // Computes the scores of all tokens and the maximum of each head. Returns false if K holds an Inf or NaN.
  bool compute_scores() {
    float c[abi::kMaxCommandGroup];
    std::fill(c, c + job_.g, std::bit_cast<float>(job_.scale_log2e));
    if (is_integer(format_of(job_))) {
      integers_.emplace(kernels_, job_.q, job_.g, job_.d);
    }
    const Dots<ScoreRounding> dots(kernels_, query_, {c}, context_.statistics);
    std::atomic<bool> finite{true};
    std::vector<Maxima> maxima(context_.pool.workers());
    each_piece(abi::kKeys, [&](const Piece& piece) {
      share_blocks(piece, [&](unsigned worker, std::size_t start, std::size_t end) {
        std::uint64_t non_finite = 0;
        for (std::size_t t = start; t < end; t += kBlockTokens) non_finite |= score_block(dots, piece, t, end);
        if (non_finite != 0) finite = false;
        see_scores(start, end, maxima[worker]);
      });
    });
    if (job_.inline_tokens != 0) {
      for (unsigned h = 0; h < job_.g; ++h) {
        std::memcpy(scores_ + h * stride_ + tokens_.dense, job_.inline_scores + h * job_.inline_stride,
                    job_.inline_tokens * sizeof(*scores_));
      }
      see_scores(tokens_.dense, tokens_.total, maxima.front());
    }
    for (unsigned h = 0; h < job_.g && tokens_.total != 0; ++h) {
      std::int32_t most = INT32_MIN;
      for (const Maxima& one : maxima) most = std::max(most, one.score[h]);
      max_[h] = ceil_score(most);
    }
    return finite;
  }

  // The maxima of the heads' scores that a worker has seen.
  struct Maxima {
    std::int32_t score[abi::kMaxCommandGroup];
    Maxima() { std::fill_n(score, abi::kMaxCommandGroup, INT32_MIN); }
  };

  void see_scores(std::size_t start, std::size_t end, Maxima& seen) const {
    for (unsigned h = 0; h < job_.g; ++h) {
      seen.score[h] = std::max(seen.score[h], kernels_.max_score(scores_ + h * stride_ + start, end - start));
    }
  }

  // Computes probabilities (in place of the scores), Z, and the weighted sums of V. Returns false if V holds an Inf or
  // NaN.
  bool accumulate() {
    const std::size_t size = std::size_t{job_.g} * job_.d;
    sums_.reserve(context_.pool.workers());
    for (unsigned worker = 0; worker < context_.pool.workers(); ++worker) sums_.emplace_back(size);
    each_piece_of_v([&](const Piece& piece) {
      share_blocks(piece, [&](unsigned worker, std::size_t start, std::size_t end) {
        for (std::size_t t = start; t < end; t += kBlockTokens) add_block(piece, t, end, sums_[worker]);
      });
    });
    Sums& total = sums_.front();
    for (Sums& sums : sums_) sums.flush(kernels_);
    for (unsigned worker = 1; worker < sums_.size(); ++worker) total.add(kernels_, sums_[worker]);
    return std::all_of(+total.high, total.high + size, [](double x) { return std::isfinite(x); });
  }

  // Computes the scores of one block. Returns a bit for each token with an Inf or NaN.
  std::uint64_t score_block(const Dots<ScoreRounding>& dots, const Piece& piece, std::size_t start,
                            std::size_t end) const {
    if (!integers_.has_value()) {
      const Block block(kernels_, piece, start, end, job_.d);
      return dots.rows(block.with_ahead(), block.n, scores_ + start, stride_);
    }
    const CodeBlock block(kernels_, piece, start, end, job_.d);
    KeyCodes keys;  // NOLINT(cppcoreguidelines-pro-type-member-init): it would cost as much as the arithmetic
    kernels_.pack_keys(block.rows(), keys);
    const auto decoded = [&block](unsigned t) { return block.decoded(t); };
    return dots.codes(*integers_, keys, block.n, decoded, scores_ + start, stride_);
  }

  void add_block(const Piece& piece, std::size_t start, std::size_t end, Sums& sums) {
    if (is_integer(piece.rows.format)) return add_codes(CodeBlock(kernels_, piece, start, end, job_.d), sums);
    const Block block(kernels_, piece, start, end, job_.d);
    each_tile(job_.g, [&](unsigned first, unsigned heads) {
      alignas(abi::kBeatBytes) double weights[kTileHeads * kBlockTokens];
      std::uint64_t z[kTileHeads];
      for (unsigned h = 0; h < heads; ++h) {
        std::uint32_t* const p = probabilities(first + h, block.first, block.n, z[h]);
        double* const w = weights + h * kBlockTokens;
        kernels_.to_weights(p, block.n, w);
        for (unsigned t = 0; t < block.n && block.factor != 1; ++t) w[t] *= block.factor;
      }
      const double largest = kernels_.add_weighted_sums(weights, kBlockTokens, heads, block.with_ahead(), block.n,
                                                        job_.d, sums.recent + std::size_t{first} * job_.d);
      for (unsigned h = 0; h < heads; ++h) sums.count(first + h, z[h], block.factor * largest);
    });
    if (++sums.recent_blocks == kRecentBlocks) sums.flush(kernels_);
  }

  void add_codes(const CodeBlock& block, Sums& sums) {
    ValueCodes values;  // NOLINT(cppcoreguidelines-pro-type-member-init): it would cost as much as the arithmetic
    kernels_.pack_values(block.rows(), values);
    ++sums.code_blocks;
    each_tile(job_.g, [&](unsigned first, unsigned heads) {
      double enough[kTileHeads];
      for (unsigned h = first; h < first + heads; ++h) {
        std::uint64_t z;
        probabilities(h, block.first, block.n, z);
        sums.count(h, z, values.largest);
        enough[h - first] = kLeftOut * sums.magnitude[h];
      }
      const auto p = reinterpret_cast<const std::uint32_t*>(scores_ + first * stride_ + block.first);
      kernels_.add_code_sums({p, stride_, heads, block.n}, values, job_.d, enough, sums.high + first * job_.d,
                             sums.left_out + first);
    });
  }

  // Computes the probabilities of n tokens of head h in place of the scores, and their sum.
  std::uint32_t* probabilities(unsigned h, std::size_t first, unsigned n, std::uint64_t& z) const {
    std::int32_t* const scores = scores_ + h * stride_ + first;
    const auto p = reinterpret_cast<std::uint32_t*>(scores);
    z = kernels_.probabilities(scores, n, max_[h], p);
    return p;
  }

  // Calls use(Piece) for the dense tokens' rows of K or V, in order.
  template <typename Use>
  void each_piece(abi::KvKind kind, Use use) const {
    if (job_.pages == nullptr) {
      return use(Piece{{kind == abi::kKeys ? job_.k : job_.v, nullptr, 1, 0}, tokens_.index, 0, tokens_.dense});
    }
    const unsigned per_page = job_.pages->rows_per_page();
    job_.pages->visit(kind, [&](std::size_t first, std::span<const std::byte* const> pages) {
      const std::size_t begin = first * per_page, end = begin + pages.size() * per_page;
      const Rows rows{nullptr, pages.data(), per_page, begin, job_.pages->format()};
      use(Piece{rows, tokens_.index, tokens_.up_to(begin), tokens_.up_to(end), kind, pages});
    });
  }

  // Calls use(Piece) for the rows of V, then for the inline tokens.
  template <typename Use>
  void each_piece_of_v(Use use) const {
    each_piece(abi::kValues, use);
    if (job_.inline_tokens != 0)
      use(Piece{{job_.inline_v, nullptr, 1, tokens_.dense}, nullptr, tokens_.dense, tokens_.total});
  }

  // Calls work(worker, start, end) for parts of the piece's tokens, after their pages were checked.
  template <typename Work>
  void share_blocks(const Piece& piece, Work work) const {
    if (piece.pages.empty()) {
      share(context_.pool, ceil_div(piece.last - piece.first, kBlockTokens), kBlocksAtOnce,
            [&](unsigned worker, std::size_t first, std::size_t last) {
              work(worker, piece.first + first * kBlockTokens, std::min(piece.first + last * kBlockTokens, piece.last));
            });
      return;
    }
    // A block's pages are checked just before the block is computed, when its rows were prefetched.
    const std::size_t per_block = std::max<std::size_t>(1, kBlockTokens / piece.rows.per_page);
    const auto token = [&](std::size_t page) { return tokens_.up_to(piece.rows.first + page * piece.rows.per_page); };
    share(context_.pool, piece.pages.size(), kPagesAtOnce, [&](unsigned worker, std::size_t first, std::size_t last) {
      for (std::size_t page = first, next = 0; page < last; page = next) {
        next = std::min(page + per_block, last);
        check(piece, page, next);
        work(worker, token(page), token(next));
      }
    });
  }

  void check(const Piece& piece, std::size_t first, std::size_t last) const {
    if (first == last) return;
    const std::size_t page = piece.rows.first / piece.rows.per_page;
    job_.pages->check(piece.kind, page + first, piece.pages.subspan(first, last - first));
  }

  void write_record(std::uint32_t status) const {
    for (unsigned i = 0; i < records_of(job_.g); ++i) {
      abi::AttentionResult& record = job_.result[i];
      if (job_.mode != abi::kSparfAttend) record = {};
      record.status = status;
      for (unsigned slot = 0, h = i * abi::kMaxGroup; slot < abi::kMaxGroup; ++slot, ++h) {
        const bool used = status == 0 && h < job_.g;
        record.max[slot] = used ? max_[h] : 0;
        record.sum[slot] = used ? sums_.front().z[h] : 0;
      }
    }
  }

  void write_out() const {
    for (unsigned h = 0; h < job_.g; ++h) {
      std::byte* out = job_.out + job_.out_bytes / job_.g * h;
      if (job_.mode == abi::kExact) {
        halves(h, reinterpret_cast<std::uint16_t*>(out));
      } else if (job_.mode == abi::kPartial) {
        singles(h, reinterpret_cast<std::uint32_t*>(out));
      } else {
        std::uint32_t o[abi::kMaxHeadDim];
        singles(h, o);
        blend(h, o, reinterpret_cast<std::uint16_t*>(out));
      }
    }
  }

  void halves(unsigned h, std::uint16_t* out) const {
    std::uint8_t uncertain[abi::kMaxHeadDim];
    kernels_.ratios_to_half(high(h), low(h), sums_.front().error(h), z(h), job_.d, out, uncertain);
    resolve(h, uncertain, [out](unsigned j, double ratio) { out[j] = to_half(ratio); });
  }

  void singles(unsigned h, std::uint32_t* out) const {
    std::uint8_t uncertain[abi::kMaxHeadDim];
    kernels_.ratios_to_single(high(h), low(h), sums_.front().error(h), z(h), job_.d, out, uncertain);
    resolve(h, uncertain, [out](unsigned j, double ratio) { out[j] = to_single(ratio); });
  }

  // out = fl16(alpha * o + (1 - alpha) * mean of all V)
  void blend(unsigned h, const std::uint32_t* o, std::uint16_t* out) const {
    const float alpha = std::bit_cast<float>(job_.result[h / abi::kMaxGroup].alpha[h % abi::kMaxGroup]),
                beta = 1.0f - alpha;
    for (unsigned j = 0; j < job_.d; ++j) {
      const float mean = std::bit_cast<float>(to_single(sticky_ratio(job_.v_sum[j], job_.count) * 0x1p-24));
      const float near = alpha * std::bit_cast<float>(o[j]), far = beta * mean;
      out[j] = single_to_half(near + far);
    }
  }

  // Calls store(j, quotient) for the outputs that binary64 left undecided. One walk over V computes all their exact
  // sums.
  template <typename Store>
  void resolve(unsigned h, const std::uint8_t* uncertain, Store store) const {
    unsigned columns[abi::kMaxHeadDim], n = 0;
    for (unsigned j = 0; j < job_.d; ++j) {
      if (uncertain[j] != 0) columns[n++] = j;
    }
    if (n == 0) return;
    context_.statistics.outputs_exact.fetch_add(n, std::memory_order_relaxed);
    Integer acc[abi::kMaxHeadDim] = {};
    const auto add = [&](std::size_t token, const std::uint16_t* row, unsigned factor) {
      const auto p = static_cast<Integer>(static_cast<std::uint32_t>(scores_[h * stride_ + token])) * factor;
      for (unsigned j = 0; j < n; ++j) acc[j] += static_cast<Integer>(fixed(row[columns[j]])) * p;
    };
    each_piece_of_v([&](const Piece& piece) {
      check(piece, 0, piece.pages.size());
      for (std::size_t t = piece.first; t < piece.last; t += kBlockTokens) {
        if (is_integer(piece.rows.format)) {
          const CodeBlock block(kernels_, piece, t, piece.last, job_.d);
          for (unsigned i = 0; i < block.n; ++i) add(t + i, block.decoded(i), 1);
        } else {
          const Block block(kernels_, piece, t, piece.last, job_.d);
          for (unsigned i = 0; i < block.n; ++i) add(t + i, block.rows[i], block.factor);
        }
      }
    });
    for (unsigned j = 0; j < n; ++j) store(columns[j], sticky_ratio(acc[j], sums_.front().z[h]) * 0x1p-24);
  }

  const double* high(unsigned h) const { return sums_.front().high + std::size_t{h} * job_.d; }
  const double* low(unsigned h) const { return sums_.front().low + std::size_t{h} * job_.d; }
  double z(unsigned h) const { return static_cast<double>(sums_.front().z[h]); }

  Query query_;
  std::optional<IntegerQuery> integers_;  // if K and V are stored as integers
  std::vector<Sums> sums_;                // one for each worker; after accumulate() the first one holds the total
  const Context& context_;
  const Kernels& kernels_;
  const Job& job_;
  Tokens tokens_;
  std::size_t stride_;
  std::int32_t* scores_ = nullptr;  // [g][stride_]; probabilities after the second pass
  std::int32_t max_[abi::kMaxCommandGroup] = {};
};

}  // namespace

std::uint32_t attend(const Context& context, const Job& job) { return Attention(context, job).run(); }

}  // namespace kvdrive::fast
