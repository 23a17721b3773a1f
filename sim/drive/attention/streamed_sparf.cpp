// SPDX-License-Identifier: Apache-2.0
// SparF without the page cache. The rows of K follow from the query alone, so the index of all heads comes in one
// stream; while the engine scores a head, the chosen tokens of the one before it arrive.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "attention/attention_unit.hpp"
#include "attention/prefetch.hpp"
#include "ftl/group_stream.hpp"

namespace kvdrive {
namespace {

constexpr std::size_t kIndexPieces = 4;   // of the stream that brings the index
constexpr std::size_t kChosenPieces = 6;  // of that of a head's chosen tokens; two heads are under way

// Single groups in the order in which they were asked for, each compared with its checksum.
class CheckedGroups {
 public:
  CheckedGroups(Ftl& ftl, std::vector<GroupStream::Group> groups, std::size_t depth)
      : ftl_(ftl), stream_(ftl.read_path(), *ftl.direct(), std::move(groups), depth, Sink::kComputer) {
    stream_.begin();
  }

  const std::byte* next(ListId list, std::uint32_t index) {
    if (taken_ == piece_.pages.size()) {
      piece_ = stream_.next();
      taken_ = 0;
      if (!piece_.whole) unread_ = true;
    }
    const std::byte* const page = piece_.pages[taken_++];
    if (taken_ < piece_.pages.size()) prefetch(piece_.pages[taken_]);
    damaged_ += ftl_.damaged(list, index, std::span(&page, 1));
    return page;
  }

  std::uint32_t damaged() const { return std::max(damaged_, unread_ ? 1U : 0U); }

 private:
  Ftl& ftl_;
  GroupStream stream_;
  GroupStream::Piece piece_{};
  std::size_t taken_ = 0;
  std::uint32_t damaged_ = 0;
  bool unread_ = false;
};

}  // namespace

class AttentionUnit::SparfHead {
 public:
  SparfHead(AttentionUnit& unit, const Head& head, JobMemory& memory) : unit_(unit), head_(head), memory_(memory) {}

  // Chooses rows of K; adds the groups that hold them.
  void plan(std::vector<GroupStream::Group>& groups) {
    unit_.memory_ = &memory_;
    done_ = unit_.choose_rows(head_);
    if (failed()) return;
    record_ = memory_.record();
    std::memcpy(bitmap_.data(), memory_.at(memory_.job.rows), bitmap_.size());
    for (std::uint32_t i = 0; i < head_.k.head_dim(); ++i) {
      if ((std::to_integer<unsigned>(bitmap_[i / 8]) >> i % 8 & 1) != 0) rows_.push_back(i);
    }
    EmbeddingSpan span = EmbeddingSpan::first(head_.k.head_dim());
    for (; span.first_page + span.pages() <= head_.k.embedding() && span.first_token < tokens(); span = span.next()) {
      if (!head_.any_valid(span.first_token, std::min(span.end(), tokens()))) continue;  // their scores do not count
      spans_.push_back(span);
      each_page(span, [&](std::uint32_t page, auto) { groups.push_back({head_.k.embedding_list(), page}); });
    }
    not_indexed_ = std::min(span.first_token, tokens());
    wanted_ = head_.wanted_groups(head_.k, tokens());
    for (std::uint32_t group = not_indexed_ / per_group(); group < wanted_.size(); ++group) {
      if (wanted_[group]) groups.push_back({head_.k.list(), group});
    }
  }

  // Scores all tokens by the rows, chooses some and starts to read them.
  void choose(CheckedGroups& index) {
    if (failed()) return;
    unit_.memory_ = &memory_;
    memory_.clear();
    memory_.job.q = memory_.place(head_.q);
    memory_.job.rows = memory_.place(bitmap_);
    memory_.job.r = head_.command.r;
    std::memcpy(memory_.at(memory_.job.result), &record_, sizeof record_);
    place_columns(index);
    done_ = unit_.choose_tokens(head_);
    if (failed()) return;
    list_chosen();
    std::vector<GroupStream::Group> groups;
    for (const HeadRows* rows : {&head_.k, &head_.v}) {
      each_chosen(*rows, [&](std::uint32_t group) { groups.push_back({rows->list(), group}); }, [](auto, auto) {});
    }
    arriving_ = std::make_unique<CheckedGroups>(unit_.ftl_, std::move(groups), kChosenPieces);
  }

  // Attends to the chosen tokens; the results are in the unit's present memory afterwards.
  Outcome attend() {
    if (failed()) return done_;
    unit_.memory_ = &memory_;
    const std::uint64_t bytes = std::uint64_t{chosen_.size()} * head_.k.row_bytes();
    memory_.job.k = memory_.place(bytes);
    memory_.job.v = memory_.place(bytes);
    copy_chosen(head_.k, memory_.at(memory_.job.k));
    copy_chosen(head_.v, memory_.at(memory_.job.v));
    damaged_ = arriving_->damaged();
    arriving_.reset();
    if (!unit_.place_mean(head_)) return {abi::kUnrecoveredRead};
    return unit_.attend_to_chosen(head_);
  }

  std::uint32_t damaged() const { return damaged_; }

 private:
  bool failed() const { return done_.status != abi::kSuccess; }
  std::uint32_t tokens() const { return head_.command.tokens; }
  std::uint32_t per_group() const { return head_.k.tokens_per_group(); }

  // Calls use(page, chosen rows in it) for the pages of a span with a chosen row, in order. The rows are numbers of
  // rows_: [first, last).
  template <typename Use>
  void each_page(const EmbeddingSpan& span, Use use) const {
    for (std::uint32_t page = 0; page < span.pages(); ++page) {
      const std::uint32_t row = span.first_row(page);
      const auto first = std::ranges::lower_bound(rows_, row),
                 last = std::ranges::lower_bound(rows_, row + span.rows_per_page);
      if (first != last) use(span.first_page + page, std::pair(first - rows_.begin(), last - rows_.begin()));
    }
  }

  // [ceil(tokens / 32)][r][32], as SPARF_TOKENS takes the chosen rows of K.
  void place_columns(CheckedGroups& index) {
    const std::size_t r = rows_.size(), blocks = (std::size_t{tokens()} + abi::kLanes - 1) / abi::kLanes;
    memory_.job.k = memory_.place(blocks * r * abi::kLanes * 2);
    std::byte* const columns = memory_.at(memory_.job.k);
    std::memset(columns, 0, blocks * r * abi::kLanes * 2);
    const auto column = [&](std::uint32_t token, std::size_t row) {
      return columns + ((token / abi::kLanes * r + row) * abi::kLanes + token % abi::kLanes) * 2;
    };
    for (const EmbeddingSpan& span : spans_) {
      FilterCounters seen;
      each_page(span, [&](std::uint32_t number, auto kept) {
        const std::byte* const page = index.next(head_.k.embedding_list(), number);
        const std::uint32_t token = span.first_token_of(number - span.first_page);
        const std::uint32_t count = std::min(span.block_tokens(), tokens() - std::min(tokens(), token));
        for (auto row = kept.first; row < kept.second; ++row) {
          const std::byte* from =
              page + std::size_t{rows_[static_cast<std::size_t>(row)] % span.rows_per_page} * span.row_bytes();
          for (std::uint32_t t = 0; t < count; t += abi::kLanes, from += abi::kLanes * 2) {
            std::memcpy(column(token + t, static_cast<std::size_t>(row)), from,
                        std::min<std::size_t>(abi::kLanes, count - t) * 2);
          }
        }
        ++seen.pages;
        seen.rows_kept += static_cast<std::uint64_t>(kept.second - kept.first);
      });
      count(seen, span.pages(), span.rows_per_page, span.row_bytes());
    }
    const auto place_rows = [&](const std::byte* from, std::uint32_t first, std::uint32_t end) {
      for (std::uint32_t token = first; token < end; ++token, from += head_.k.row_bytes()) {
        for (std::size_t row = 0; row < r; ++row)
          std::memcpy(column(token, row), from + std::size_t{rows_[row]} * 2, 2);
      }
    };
    for (std::uint32_t group = not_indexed_ / per_group(); group < wanted_.size(); ++group) {
      if (!wanted_[group]) continue;
      const std::uint32_t first = std::max(group * per_group(), not_indexed_);
      const std::byte* const page = index.next(head_.k.list(), group);
      place_rows(page + std::size_t{first % per_group()} * head_.k.row_bytes(), first,
                 std::min((group + 1) * per_group(), tokens()));
    }
    const std::uint32_t tail = std::max(head_.k.tokens_in_groups(), not_indexed_);
    if (tail >= tokens()) return;
    place_rows(head_.k.tail().data() + std::size_t{tail - head_.k.tokens_in_groups()} * head_.k.row_bytes(), tail,
               tokens());
    unit_.tail_bytes_read_ += std::uint64_t{tokens() - tail} * head_.k.row_bytes();
  }

  void list_chosen() {
    const std::byte* const bitmap = memory_.at(memory_.job.out);
    chosen_.reserve(memory_.record().selected);
    for (std::uint32_t i = 0; i < tokens(); ++i) {
      if ((std::to_integer<unsigned>(bitmap[i / 8]) >> i % 8 & 1) != 0) chosen_.push_back(i);
    }
  }

  // Calls group(number) for each group with a chosen token, before row(token, its place in the group) for these;
  // tokens behind the groups are left out.
  template <typename Group, typename Row>
  void each_chosen(const HeadRows& rows, Group group, Row row) const {
    const std::uint32_t stored = rows.tokens_in_groups();
    std::uint32_t present = UINT32_MAX;
    for (const std::uint32_t token : chosen_) {
      if (token >= stored) break;
      if (token / per_group() != present) group(present = token / per_group());
      row(token, token % per_group());
    }
  }

  void copy_chosen(const HeadRows& rows, std::byte* to) {
    const std::size_t row_bytes = rows.row_bytes();
    const std::byte* page = nullptr;
    FilterCounters seen;
    each_chosen(
        rows,
        [&](std::uint32_t group) {
          page = arriving_->next(rows.list(), group);
          ++seen.pages;
        },
        [&](std::uint32_t, std::uint32_t place) {
          std::memcpy(to, page + place * row_bytes, row_bytes);
          to += row_bytes;
          ++seen.rows_kept;
        });
    count(seen, (std::min(tokens(), rows.tokens_in_groups()) + per_group() - 1) / per_group(), per_group(),
          rows.row_bytes());
    for (std::size_t i = seen.rows_kept; i < chosen_.size(); ++i, to += row_bytes) {
      std::memcpy(to, rows.tail().data() + (chosen_[i] - rows.tokens_in_groups()) * row_bytes, row_bytes);
    }
  }

  void count(FilterCounters seen, std::uint32_t pages, std::uint32_t rows_per_page, std::uint32_t row_bytes) {
    seen.pages_left = pages - seen.pages;
    seen.rows_dropped = seen.pages * rows_per_page - seen.rows_kept;
    seen.bytes_kept = seen.rows_kept * row_bytes;
    unit_.filter_.count(seen);
  }

  AttentionUnit& unit_;
  const Head head_;
  JobMemory& memory_;
  Outcome done_;
  std::array<std::byte, abi::kBeatBytes> bitmap_;  // of the chosen rows
  abi::AttentionResult record_;
  std::vector<std::uint32_t> rows_;
  std::vector<EmbeddingSpan> spans_;
  std::uint32_t not_indexed_ = 0;  // tokens from this one on
  std::vector<bool> wanted_;       // groups of these
  std::vector<std::uint32_t> chosen_;
  std::unique_ptr<CheckedGroups> arriving_;
  std::uint32_t damaged_ = 0;
};

AttentionOutcome AttentionUnit::run_sparf_streamed(const abi::AttnSubmit& command, std::span<const std::byte> data) {
  std::vector<GroupStream::Group> groups;
  std::vector<SparfHead> heads;
  data_done_ = ready_;
  for (std::uint32_t i = 0; i < command.heads; ++i) {
    heads.emplace_back(*this, head_of(command, data, i), job_memories_[i % 2]);
    heads.back().plan(groups);
  }
  CheckedGroups index(ftl_, std::move(groups), kIndexPieces);
  heads[0].choose(index);
  const AttentionOutcome outcome = collect(command, [&](std::uint32_t i) {
    if (i + 1 < command.heads) heads[i + 1].choose(index);
    return heads[i].attend();
  });
  std::uint32_t damaged = index.damaged();
  for (const SparfHead& head : heads) damaged += head.damaged();
  return damaged > 0 ? refuse_damaged(damaged) : outcome;
}

}  // namespace kvdrive
