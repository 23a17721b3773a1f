// SPDX-License-Identifier: Apache-2.0
// EXACT and PARTIAL without the page cache: K and V of all heads come in one stream of pieces. While the engine works
// on a piece it is checked beside it, and the next ones arrive; memory does not depend on the context.
#include <algorithm>
#include <atomic>
#include <vector>

#include "attention/attention_unit.hpp"
#include "ftl/group_stream.hpp"

namespace kvdrive {
namespace {

constexpr std::size_t kPiecesAgain = 2;  // of the stream that fetches V once more

// What a job needs of K or V of a head: groups from the disk, then rows that wait in drive memory.
struct Section {
  const HeadRows* rows = nullptr;
  std::uint32_t first_group = 0, end_group = 0;
  std::uint32_t tokens = 0;

  // Without the groups before the first valid token and behind the last one: padding, what a window leaves out.
  Section(const HeadRows& of, std::uint32_t first_token, std::uint32_t end_token, std::uint32_t all)
      : rows(&of), tokens(all) {
    const std::uint32_t per_group = of.tokens_per_group();
    first_group = std::min(first_token / per_group, of.groups());
    end_group = std::clamp((end_token + per_group - 1) / per_group, first_group, of.groups());
  }

  void add_to(std::vector<GroupStream::Group>& groups) const {
    for (std::uint32_t index = first_group; index < end_group; ++index) groups.push_back({rows->list(), index});
  }

  std::vector<const std::byte*> tail_pages() const {
    std::vector<const std::byte*> pages;
    const std::uint32_t per_group = rows->tokens_per_group();
    for (std::uint32_t token = rows->tokens_in_groups(); token < tokens; token += per_group) {
      pages.push_back(rows->tail().data() + std::size_t{token - rows->tokens_in_groups()} * rows->row_bytes());
    }
    return pages;
  }

  std::uint64_t tail_bytes() const {
    return std::uint64_t{tokens - std::min(tokens, rows->tokens_in_groups())} * rows->row_bytes();
  }
};

class StreamedPages final : public KvPages {
 public:
  StreamedPages(Ftl& ftl, GroupStream& ahead, const Section& k, const Section& v)
      : KvPages(k.rows->tokens_per_group()), ftl_(ftl), ahead_(ahead), sections_{&k, &v} {}

  void visit(abi::KvKind kind, const Visit& visit) const override {
    const Section& section = *sections_[kind];
    if (!came_[kind]) {
      came_[kind] = true;
      pass(ahead_, section, visit);
    } else {
      std::vector<GroupStream::Group> groups;
      section.add_to(groups);
      GroupStream again(ftl_.read_path(), *ftl_.direct(), std::move(groups), kPiecesAgain, Sink::kComputer);
      pass(again, section, visit);
    }
    if (const auto tail = section.tail_pages(); !tail.empty()) visit(section.rows->groups(), tail);
  }

  void check(abi::KvKind kind, std::size_t first, std::span<const std::byte* const> pages) const override {
    damaged_ += damaged_groups(ftl_, *sections_[kind]->rows, first, pages);
  }

  std::uint32_t damaged() const { return damaged_; }

 private:
  void pass(GroupStream& stream, const Section& section, const Visit& visit) const {
    for (std::uint32_t group = section.first_group; group < section.end_group;) {
      const auto piece = stream.next();
      const std::uint32_t before = damaged_;
      visit(group, piece.pages);
      if (!piece.whole && damaged_ == before) ++damaged_;
      group += static_cast<std::uint32_t>(piece.pages.size());
    }
  }

  Ftl& ftl_;
  GroupStream& ahead_;
  const Section* sections_[2];
  mutable bool came_[2] = {};
  mutable std::atomic<std::uint32_t> damaged_ = 0;
};

}  // namespace

AttentionOutcome AttentionUnit::run_streamed(const abi::AttnSubmit& command, std::span<const std::byte> data) {
  std::uint32_t first = 0, end = command.tokens;
  const Head any = head_of(command, data, 0);
  while (first < end && !any.is_valid(first)) ++first;
  while (first < end && !any.is_valid(end - 1)) --end;
  std::vector<Section> sections;
  std::vector<GroupStream::Group> groups;
  for (std::uint32_t i = 0; i < command.heads; ++i) {
    const Head head = head_of(command, data, i);
    for (const HeadRows* rows : {&head.k, &head.v}) {
      sections.emplace_back(*rows, first, end, command.tokens).add_to(groups);
      tail_bytes_read_ += sections.back().tail_bytes();
    }
  }
  GroupStream ahead(ftl_.read_path(), *ftl_.direct(), std::move(groups), DirectReads::kBuffers, Sink::kComputer);
  std::uint32_t damaged = 0;
  AttentionOutcome outcome = collect(command, [&](std::uint32_t i) {
    const Head head = head_of(command, data, i);
    const StreamedPages pages(ftl_, ahead, sections[2 * i], sections[2 * i + 1]);
    data_done_ = ready_;
    start_dense(head);
    const Outcome done = run_job(&pages);
    damaged += pages.damaged();
    return done;
  });
  return damaged > 0 ? refuse_damaged(damaged) : outcome;
}

}  // namespace kvdrive
