// SPDX-License-Identifier: Apache-2.0
// Policy groups runs as two jobs (docs/jobs.md). The first scores all indexed tokens from the 2-bit index of K and
// chooses units of tokens. The second is EXACT over the tokens of these units and over the tokens without an index.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "attention/choosing_run.hpp"
#include "attention/chosen_rows.hpp"
#include "common/abi.hpp"

namespace kvdrive {
namespace {

constexpr unsigned kLimitBits = 16;  // fraction bits of the share that may be left unread

class GroupsHead {
 public:
  GroupsHead(RunContext& context, const Head& head, PageSource& pages)
      : context_(context), memory_(context.memory), head_(head), pages_(pages) {
    done_.done = context.ready;
    if (const KeyIndex* index = head.k.index()) {
      indexed_ = std::min(index->spans(), head.tokens() / KeyIndex::kSpanTokens) * KeyIndex::kSpanTokens;
    }
    units_ = (indexed_ + unit() - 1) / unit();
  }

  // Adds a request for the pages of the index, unless all units are chosen anyway. They do not depend on the query.
  Ns ask_for_index(std::vector<RowRequest>& index) const {
    if (!chooses()) return context_.ready;
    RowRequest request{.list = head_.k.index()->list(), .filtered = false, .keep = RowRequest::Keep::kIndex};
    const auto whole =
        std::min<std::uint64_t>((index_bytes() + abi::kPageBytes - 1) / abi::kPageBytes, head_.k.index()->pages());
    request.rows.add(0, static_cast<std::uint32_t>(whole));
    index.push_back(std::move(request));
    return context_.ready;
  }

  // Chooses units by the index, which comes next in `index`. Then starts to read their tokens.
  void choose(RowBatch& index) {
    std::vector<bool> units(units_, true);
    if (chooses()) {
      if (!index.whole) return lose();
      done_.done = std::max(done_.done, index.done);
      units = choose_units(index);
      if (failed()) return;
    }
    for (std::uint32_t i = 0; i < units_; ++i) {
      if (units[i]) head_.add_valid(i * unit(), std::min((i + 1) * unit(), indexed_), tokens_);
    }
    head_.add_valid(indexed_, head_.tokens(), tokens_);
    std::vector<RowRequest> chosen;
    for (const HeadRows* rows : {&head_.k, &head_.v}) {
      chosen.push_back(stored_rows(*rows, tokens_, head_.tokens()));
      chosen.back().keep = RowRequest::Keep::kHot;
    }
    arriving_ = pages_.read(std::move(chosen), done_.done, kChosenPieces);
  }

  // Attends to the chosen tokens.
  HeadOutcome attend() {
    if (failed()) return done_;
    if (!arriving_->whole) return lose(), done_;
    done_.done = std::max(done_.done, arriving_->done);
    if (tokens_.empty() && head_.command.inline_tokens == 0) {
      done_.status = status_of(done_.engine_status = abi::kEmpty);
      return done_;
    }
    memory_.start(head_, abi::kExact);
    memory_.job.tokens = tokens_.count();
    memory_.job.out = memory_.place(head_.out_bytes());
    memory_.place_inline_tokens(head_, true);
    if (!context_.engine.reads_pages()) {
      attend_to_rows();
    } else if (ChosenPages::fit(head_.k, tokens_)) {
      attend_in_place();
    } else {
      attend_to_stored_rows();
    }
    arriving_.reset();
    if (!failed()) note_left_out();
    return done_;
  }

 private:
  void attend_to_rows() {
    memory_.job.k = place_rows(memory_, *arriving_, head_.k, tokens_);
    memory_.job.v = place_rows(memory_, *arriving_, head_.v, tokens_);
    done_ = run_job(context_, done_.done);
  }

  // Units whose pages hold tokens of others, or that the mask cuts, are copied.
  void attend_to_stored_rows() {
    memory_.job.k = place_stored_rows(memory_, *arriving_, head_.k, tokens_);
    memory_.job.v = place_stored_rows(memory_, *arriving_, head_.v, tokens_);
    const PlacedRows rows(head_.k, tokens_.count(), memory_.at(memory_.job.k), memory_.at(memory_.job.v));
    done_ = run_job(context_, done_.done, &rows);
  }

  void attend_in_place() {
    const std::uint64_t bytes = tokens_.count() * std::uint64_t{head_.k.row_bytes()};
    memory_.job.k = memory_.place(bytes);
    memory_.job.v = memory_.place(bytes);
    ChosenPages pages(head_.k);
    pages.add(abi::kKeys, *arriving_, head_.k, tokens_, memory_.at(memory_.job.k));
    pages.add(abi::kValues, *arriving_, head_.v, tokens_, memory_.at(memory_.job.v));
    done_ = run_job(context_, done_.done, &pages);
  }

  std::uint32_t unit() const { return head_.command.r; }
  bool chooses() const { return head_.command.k_top < units_; }
  bool failed() const { return done_.status != abi::kSuccess; }
  void lose() { done_.status = abi::kUnrecoveredRead; }
  std::uint64_t index_bytes() const {
    return std::uint64_t{indexed_ / KeyIndex::kSpanTokens} * KeyIndex::span_bytes(head_.k.head_dim());
  }

  // Chooses more units until the command's limit of what is left unread is met.
  std::vector<bool> choose_units(RowBatch& index) {
    abi::GroupChoiceJob job = place_choice(index);
    bool chosen = run_choice(job);
    while (chosen && job.k_top < units_ && leaves_too_much()) {
      job.k_top = std::min(units_, job.k_top + (job.k_top + 1) / 2);
      chosen = run_choice(job);
    }
    if (!context_.ftl.keeps_payload()) return evenly_spaced();
    std::vector<bool> units(units_);
    if (!chosen) return units;
    for (const std::uint32_t unit : ones(memory_.at(job.out), units_)) units[unit] = true;
    return units;
  }

  abi::GroupChoiceJob place_choice(RowBatch& index) {
    memory_.start(head_, abi::kExact);
    abi::GroupChoiceJob job{};
    job.version = abi::kAbiVersion;
    job.group = head_.command.group;
    job.unit = static_cast<std::uint8_t>(unit());
    job.head_dim = static_cast<std::uint16_t>(head_.k.head_dim());
    job.exponent = static_cast<std::uint16_t>(head_.k.index()->exponent());
    job.tokens = indexed_;
    job.inline_tokens = head_.command.inline_tokens;
    job.k_top = head_.command.k_top;
    job.scale_log2e = head_.command.scale_log2e;
    job.q = memory_.job.q;
    job.result = memory_.job.result;
    job.inline_scores = memory_.place(head_.inline_scores);
    if (!head_.valid.empty()) job.valid = memory_.place(head_.valid);
    job.out = memory_.place_zeros(whole_beats((units_ + 7) / 8));
    job.index = place_index(index);  // last: pointers into the memory must stay valid
    return job;
  }

  // Returns false if nothing was chosen: the job failed, no indexed token is valid, or the drive has no contents.
  bool run_choice(const abi::GroupChoiceJob& job) {
    done_.done = context_.clock.count(job, done_.done);
    if (!context_.ftl.keeps_payload()) return false;
    const std::uint32_t status = memory_.choose(job, index_);
    if (status == abi::kEmpty) return false;
    done_.status = status_of(status);
    done_.engine_status = status;
    if (failed()) return false;
    const auto records = memory_.records();
    choice_.resize(records.size() / sizeof(abi::GroupChoiceResult));
    std::memcpy(choice_.data(), records.data(), records.size());
    return true;
  }

  // True if a query head would leave a larger share of its estimated softmax unread than the command allows.
  bool leaves_too_much() const {
    const std::uint64_t limit = head_.command.local;
    for (unsigned h = 0; h < head_.command.group && limit > 0; ++h) {
      const abi::GroupChoiceResult& choice = choice_[h / abi::kMaxGroup];
      const std::uint64_t sum = choice.sum[h % abi::kMaxGroup];
      const std::uint64_t allowed =
          (sum >> kLimitBits) * limit + ((sum & ((1U << kLimitBits) - 1)) * limit >> kLimitBits);
      if (choice.unread[h % abi::kMaxGroup] > allowed) return true;
    }
    return false;
  }

  // A drive without contents computes nothing. So many units take the same time wherever they are.
  std::vector<bool> evenly_spaced() const {
    std::vector<bool> units(units_);
    for (std::uint64_t i = 0; i < head_.command.k_top; ++i) units[i * units_ / head_.command.k_top] = true;
    return units;
  }

  // An engine that reads pages gets those that stay where they are, and copies of the others.
  std::uint64_t place_index(RowBatch& index) {
    const std::uint64_t bytes = index_bytes(), address = memory_.place(bytes);
    std::byte* const to = memory_.at(address);
    std::uint64_t at = 0;
    const auto add = [&](const std::byte* page, bool stays) {
      const std::uint64_t part = std::min<std::uint64_t>(abi::kPageBytes, bytes - at);
      const bool in_place = stays && context_.engine.reads_pages();
      if (!in_place) page = static_cast<const std::byte*>(std::memcpy(to + at, page, part));
      if (context_.engine.reads_pages()) index_.push_back(page);
      at += part;
    };
    index.next([&](auto, const std::byte* page, bool stays) { add(page, stays); });
    if (at < bytes) add(head_.k.index()->waiting().data(), true);
    return address;
  }

  // Notes the estimated share of the softmax in the units that were not chosen, in `alpha` of the records.
  void note_left_out() {
    const auto records = memory_.records();
    for (unsigned h = 0; h < head_.command.group && !choice_.empty(); ++h) {
      const unsigned slot = h % abi::kMaxGroup;
      std::byte* const at = records.data() + h / abi::kMaxGroup * sizeof(abi::AttentionResult);
      abi::AttentionResult record;
      std::memcpy(&record, at, sizeof record);
      const abi::GroupChoiceResult& choice = choice_[h / abi::kMaxGroup];
      const auto unread = static_cast<double>(choice.unread[slot]);
      const double read = std::ldexp(static_cast<double>(record.sum[slot]), record.max[slot] - choice.max[slot]);
      const auto left = static_cast<float>(choice.unread[slot] == 0 ? 0 : unread / (unread + read));
      std::memcpy(&record.alpha[slot], &left, sizeof left);
      std::memcpy(at, &record, sizeof record);
    }
  }

  RunContext& context_;
  JobMemory& memory_;
  const Head& head_;
  PageSource& pages_;
  HeadOutcome done_;
  std::uint32_t indexed_ = 0;  // tokens of the command that have an index
  std::uint32_t units_ = 0;
  std::vector<const std::byte*> index_;         // pages, for an engine that reads them
  std::vector<abi::GroupChoiceResult> choice_;  // empty if nothing was chosen
  Runs tokens_;                                 // that are attended to
  std::unique_ptr<RowBatch> arriving_;
};

}  // namespace

AttentionOutcome run_groups(RunContext& context, std::span<const Head> heads, PageSource& pages) {
  for (const bool index : {false, true}) context.ftl.read_path().kept(index).begin_command();
  return run_choosing<GroupsHead>(context, heads, pages);
}

}  // namespace kvdrive
