// SPDX-License-Identifier: Apache-2.0
// SparF runs as three jobs with page reads between them (docs/jobs.md). The first chooses rows of K. The second scores
// every token from these rows and chooses tokens. The third attends to the chosen tokens and blends the result with the
// mean of all V. The index is the embedding-indexed copy of K, in binary16. An engine that reads pages attends to rows
// in 8 or 4 bits as they are stored; for other jobs and engines the drive's processor decodes them.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "attention/choosing_run.hpp"
#include "attention/chosen_rows.hpp"
#include "kv/embedding.hpp"
#include "kv/halves.hpp"

namespace kvdrive {
namespace {

// The chosen rows of a head's K in the form that SPARF_TOKENS reads: [ceil(tokens / 32)][r][32].
struct Columns {
  std::byte* memory;
  std::size_t r;

  std::byte* at(std::uint32_t token, std::size_t row) const {
    return memory + ((token / abi::kLanes * r + row) * abi::kLanes + token % abi::kLanes) * 2;
  }
  // Adds values of one row for consecutive tokens, starting at a multiple of 32.
  void add(std::uint32_t token, std::uint32_t count, std::size_t row, const std::byte* from) const {
    for (std::uint32_t t = 0; t < count; t += abi::kLanes, from += std::size_t{abi::kLanes} * 2) {
      std::memcpy(at(token + t, row), from, std::min<std::size_t>(abi::kLanes, count - t) * 2);
    }
  }
  // Adds stored rows of tokens, of which the dimensions `rows` are chosen.
  void add_tokens(std::uint32_t token, const std::vector<std::uint32_t>& rows, const HeadRows& k,
                  std::span<const std::byte> stored) const {
    std::array<std::uint16_t, abi::kMaxHeadDim> halves{};
    for (; !stored.empty(); ++token, stored = stored.subspan(k.row_bytes())) {
      decode_rows(k.format(), k.head_dim(), stored.first(k.row_bytes()), halves.data());
      for (std::size_t row = 0; row < r; ++row) std::memcpy(at(token, row), &halves[rows[row]], sizeof halves[0]);
    }
  }
};

class SparfHead {
 public:
  SparfHead(RunContext& context, const Head& head, PageSource& pages)
      : context_(context), memory_(context.memory), head_(head), pages_(pages) {
    done_.done = context.ready;
  }

  // Chooses rows of K, and adds requests for them to `index`. Returns the device time at which they are chosen.
  Ns ask_for_index(std::vector<RowRequest>& index) {
    memory_.start(head_, abi::kSparfRows);
    memory_.job.rows = memory_.place_zeros(abi::kBeatBytes);
    memory_.job.r = head_.command.r;
    run();
    if (failed()) return done_.done;
    std::memcpy(bitmap_.data(), memory_.at(memory_.job.rows), bitmap_.size());
    rows_ = ones(bitmap_.data(), head_.k.head_dim());
    add_requests(index);
    return done_.done;
  }

  // Scores all tokens with the chosen rows, which come next in `index`. Then chooses tokens and starts to read them.
  void choose(RowBatch& index) {
    if (failed()) return;
    if (!index.whole) return lose();
    done_.done = std::max(done_.done, index.done);
    memory_.start(head_, abi::kSparfTokens);
    memory_.job.rows = memory_.place(bitmap_);
    memory_.job.r = head_.command.r;
    memory_.job.k_top = head_.command.k_top;
    memory_.job.local = head_.command.local;
    restore_records();
    place_columns(index);
    if (!head_.valid.empty()) memory_.job.valid = memory_.place(head_.valid);
    memory_.place_inline_tokens(head_, false);
    memory_.job.out = memory_.place_zeros(whole_beats((tokens() + 7) / 8));
    run();
    if (failed()) return;
    for (const std::uint32_t token : ones(memory_.at(memory_.job.out), tokens())) chosen_.add(token, token + 1);
    arriving_ = pages_.read({stored_rows(head_.k, chosen_, tokens()), stored_rows(head_.v, chosen_, tokens())},
                            done_.done, kChosenPieces);
  }

  // Attends to the chosen tokens.
  HeadOutcome attend() {
    if (failed()) return done_;
    if (!arriving_->whole) return lose(), done_;
    done_.done = std::max(done_.done, arriving_->done);
    memory_.start(head_, abi::kSparfAttend);
    memory_.job.tokens = chosen_.count();
    restore_records();
    const bool as_stored = context_.engine.reads_pages();
    const auto place = as_stored ? place_stored_rows : place_rows;
    memory_.job.k = place(memory_, *arriving_, head_.k, chosen_);
    memory_.job.v = place(memory_, *arriving_, head_.v, chosen_);
    arriving_.reset();
    if (!place_mean()) return lose(), done_;
    memory_.place_inline_tokens(head_, true);
    memory_.job.out = memory_.place(head_.out_bytes());
    if (!as_stored) return run(), done_;
    const PlacedRows rows(head_.k, chosen_.count(), memory_.at(memory_.job.k), memory_.at(memory_.job.v));
    return run(&rows), done_;
  }

 private:
  std::uint32_t tokens() const { return head_.tokens(); }
  bool failed() const { return done_.status != abi::kSuccess; }
  void lose() { done_.status = abi::kUnrecoveredRead; }

  // The three jobs use the same records.
  void run(const KvPages* pages = nullptr) {
    done_ = run_job(context_, done_.done, pages);
    const auto records = memory_.records();
    records_.assign(records.begin(), records.end());
  }
  void restore_records() { std::ranges::copy(records_, memory_.records().begin()); }

  // Requests the chosen dimensions of indexed spans, then whole groups of the tokens after these spans.
  void add_requests(std::vector<RowRequest>& index) {
    EmbeddingSpan span = EmbeddingSpan::first(head_.k.head_dim());
    for (; span.first_page + span.pages() <= head_.k.embedding() && span.first_token < tokens(); span = span.next()) {
      if (!head_.any_valid(span.first_token, std::min(span.end(), tokens()))) continue;  // no valid token
      spans_.push_back(span);
      index.push_back(span_rows(span));
    }
    not_indexed_ = std::min(span.first_token, tokens());
    const std::vector<bool> wanted = head_.wanted_groups(head_.k);
    const std::uint32_t per_group = head_.k.tokens_per_group();
    whole_requests_ = index.size();
    for (std::uint32_t group = not_indexed_ / per_group; group < wanted.size(); ++group) {
      if (!wanted[group]) continue;
      const auto [first, end] = tokens_of(group);
      const std::uint32_t bytes = (end - first) * head_.k.row_bytes();
      if (index.size() == whole_requests_ || index.back().row_bytes != bytes) {
        index.push_back({.list = head_.k.list(), .row_bytes = bytes, .filtered = false});
      }
      index.back().rows.add(group, group + 1);
    }
    whole_requests_ = index.size() - whole_requests_;
  }

  RowRequest span_rows(const EmbeddingSpan& span) const {
    RowRequest request{.list = head_.k.embedding_list(),
                       .first_page = span.first_page,
                       .pages = span.pages(),
                       .rows_per_page = span.rows_per_page,
                       .row_bytes = span.row_bytes()};
    for (std::uint32_t page = 0; page < span.pages(); ++page) {
      const std::uint32_t first = span.first_row(page);
      for (auto row = std::ranges::lower_bound(rows_, first); row != rows_.end() && *row < first + span.rows_per_page;
           ++row) {
        const std::uint32_t number = page * span.rows_per_page + *row - first;
        request.rows.add(number, number + 1);
      }
    }
    return request;
  }

  // The tokens of a group of K that have no embedding index and that the command uses.
  std::pair<std::uint32_t, std::uint32_t> tokens_of(std::uint32_t group) const {
    const std::uint32_t per_group = head_.k.tokens_per_group();
    return {std::max(group * per_group, not_indexed_), std::min((group + 1) * per_group, tokens())};
  }

  void place_columns(RowBatch& index) {
    const HeadRows& k = head_.k;
    const std::size_t blocks = (std::size_t{tokens()} + abi::kLanes - 1) / abi::kLanes;
    memory_.job.k = memory_.place_zeros(blocks * rows_.size() * abi::kLanes * 2);
    const Columns columns{memory_.at(memory_.job.k), rows_.size()};
    for (const EmbeddingSpan& span : spans_) {
      index.next([&](const Run& run, const std::byte* from, bool) {
        const std::uint32_t page = run.first / span.rows_per_page, token = span.first_token_of(page);
        const std::uint32_t dimension = span.first_row(page) + run.first % span.rows_per_page;
        const std::uint32_t count = std::min(span.block_tokens(), tokens() - std::min(tokens(), token));
        // Rows that follow one another in the page are chosen dimensions that follow one another.
        const auto place = static_cast<std::size_t>(std::ranges::lower_bound(rows_, dimension) - rows_.begin());
        for (std::uint32_t i = 0; i < run.count(); ++i, from += span.row_bytes()) {
          columns.add(token, count, place + i, from);
        }
      });
    }
    for (std::size_t i = 0; i < whole_requests_; ++i) {
      index.next([&](const Run& group, const std::byte* page, bool) {
        const auto [first, end] = tokens_of(group.first);
        const std::byte* const rows = page + std::size_t{first % k.tokens_per_group()} * k.row_bytes();
        columns.add_tokens(first, rows_, k, {rows, std::size_t{end - first} * k.row_bytes()});
      });
    }
    const std::uint32_t staged = std::max(k.tokens_in_groups(), not_indexed_);
    if (staged >= tokens()) return;
    const std::size_t first = std::size_t{staged - k.tokens_in_groups()} * k.row_bytes();
    const std::size_t bytes = std::size_t{tokens() - staged} * k.row_bytes();
    columns.add_tokens(staged, rows_, k, k.staged().subspan(first, bytes));
    context_.staged_bytes += bytes;
  }

  // Places the sum and the number of the V rows that count. Starts from the stored sum of all rows if fewer rows must
  // be subtracted than added. Returns false if a page is lost.
  bool place_mean() {
    const HeadRows& v = head_.v;
    std::vector<std::int64_t> sums(v.sums().begin(), v.sums().end());
    std::uint32_t count = tokens();
    if (head_.valid.empty() && tokens() == v.tokens() && !sums.empty()) {
      context_.filtered.count(0, v.groups(), 0, 0, 0);
    } else {
      Runs in, out;
      for (std::uint32_t token = 0; token < v.tokens(); ++token) {
        (token < tokens() && head_.is_valid(token) ? in : out).add(token, token + 1);
      }
      count = in.count();
      const bool subtract = !sums.empty() && out.count() < in.count();
      if (!subtract) sums.assign(v.head_dim(), 0);
      if (!add_v(subtract ? out : in, subtract ? -1 : 1, sums)) return false;
    }
    add_rows(nvme::kBinary16, head_.inline_v, sums, 1);
    memory_.job.v_sum = memory_.place(std::as_bytes(std::span(sums)));
    memory_.job.count = count + head_.command.inline_tokens;
    return true;
  }

  bool add_v(const Runs& tokens, int sign, std::vector<std::int64_t>& sums) {
    const HeadRows& v = head_.v;
    const auto batch = pages_.read({stored_rows(v, tokens, v.tokens())}, context_.ready, kChosenPieces);
    if (!batch->whole) return false;
    done_.done = std::max(done_.done, batch->done);
    batch->next([&](const Run& run, const std::byte* bytes, bool) {
      add_rows(v.format(), {bytes, std::size_t{run.count()} * v.row_bytes()}, sums, sign);
    });
    each_staged(v, tokens, [&](std::span<const std::byte> rows) { add_rows(v.format(), rows, sums, sign); });
    return true;
  }

  RunContext& context_;
  JobMemory& memory_;
  const Head& head_;
  PageSource& pages_;
  HeadOutcome done_;
  std::vector<std::byte> records_;
  std::array<std::byte, abi::kBeatBytes> bitmap_{};  // marks the chosen rows
  std::vector<std::uint32_t> rows_;
  std::vector<EmbeddingSpan> spans_;
  std::uint32_t not_indexed_ = 0;   // first token without an embedding index
  std::size_t whole_requests_ = 0;  // number of requests for these tokens
  Runs chosen_;
  std::unique_ptr<RowBatch> arriving_;
};

}  // namespace

AttentionOutcome run_sparf(RunContext& context, std::span<const Head> heads, PageSource& pages) {
  return run_choosing<SparfHead>(context, heads, pages);
}

}  // namespace kvdrive
