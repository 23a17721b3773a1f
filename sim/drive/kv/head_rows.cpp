// SPDX-License-Identifier: Apache-2.0
#include "kv/head_rows.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "engine/shapes.hpp"
#include "kv/halves.hpp"

namespace kvdrive {
namespace {

using Page = std::array<std::byte, abi::kPageBytes>;

}  // namespace

bool RowLayout::possible() const {
  const std::uint32_t dim = head_dim();
  return dim > 0 && serves_head_dim(dim);
}

HeadRows::HeadRows(const Name& name, const RowLayout& layout)
    : name_(name), layout_(layout), head_dim_(layout.head_dim()) {
  if (layout.sparse && name.kind == abi::kValues) sums_.resize(head_dim());
  if (layout.indexed && name.kind == abi::kKeys) index_ = std::make_unique<KeyIndex>(head_dim());
}

Owner HeadRows::owner(GroupKind kind, std::size_t index) const {
  return {.session = name_.session,
          .layer = name_.layer,
          .head = name_.head,
          .kind = kind,
          .index = static_cast<std::uint32_t>(index),
          .row_bytes = static_cast<std::uint16_t>(row_bytes()),
          .layout = layout_.code()};
}

std::uint64_t HeadRows::groups_to_append(std::uint32_t tokens) const {
  std::uint64_t groups = (tokens_ + tokens) / tokens_per_group() - tokens_ / tokens_per_group();
  if (index_) groups += KeyIndex::pages_of(head_dim(), (tokens_ + tokens) / KeyIndex::kSpanTokens) - index_->pages();
  if (!sparse() || name_.kind != abi::kKeys) return groups;
  return groups + embedding_pages(head_dim(), tokens_ + tokens) - embedding_;
}

std::uint64_t HeadRows::staged_after(std::uint32_t tokens, std::uint32_t run) const {
  const std::uint32_t whole = (tokens_ + tokens) / tokens_per_group() - groups_;
  const std::uint32_t stored = (groups_ + (whole < run ? 0 : whole)) * tokens_per_group();
  return std::uint64_t{tokens_ + tokens - stored} * row_bytes();
}

std::uint64_t HeadRows::memory_bytes() const {
  constexpr std::uint64_t node = sizeof *this + 6 * sizeof(void*);  // a node of the store's map
  return node + sums_.size() * sizeof sums_[0] + (index_ ? KeyIndex::memory_bytes(head_dim()) : 0);
}

void HeadRows::prepare_append(Ftl& ftl, std::span<const std::byte> rows, std::uint32_t run, Change& change) {
  const std::size_t group_bytes = std::size_t{tokens_per_group()} * row_bytes();
  const auto tokens = static_cast<std::uint32_t>(rows.size() / row_bytes());
  const std::uint32_t whole = (tokens_ + tokens) / tokens_per_group() - groups_, added = whole < run ? 0 : whole;
  const GroupKind kind = name_.kind == abi::kKeys ? GroupKind::kKeys : GroupKind::kValues;
  if (added > 0 && list_ == GroupMap::kNoList) list_ = ftl.create_list();
  std::span<const std::byte> old = staged_, fresh = rows;
  for (std::uint32_t i = 0; i < added; ++i) {
    const auto first = old.first(std::min(old.size(), group_bytes));
    const auto rest = fresh.first(group_bytes - first.size());
    ftl.put(list_, owner(kind, groups_ + i), first, rest);
    old = old.subspan(first.size());
    fresh = fresh.subspan(rest.size());
  }
  change.groups = groups_ + added;
  change.embedding = embedding_;
  change.tokens = tokens_ + tokens;
  change.staged.reserve(old.size() + fresh.size());
  change.staged.assign(old.begin(), old.end());
  change.staged.insert(change.staged.end(), fresh.begin(), fresh.end());
  change.kept_staged = added == 0 ? staged_.size() : 0;
  if (!sums_.empty()) {
    change.sums = sums_;
    add_rows(format(), rows, change.sums, 1);
  }
  if (sparse() && name_.kind == abi::kKeys) index_spans(ftl, rows, change);
  if (!index_) return;
  const auto read = [&](std::uint32_t first, std::uint32_t count, std::byte* out) {
    return read_halves(ftl, rows, first, count, out);
  };
  index_->prepare_append(ftl, owner(GroupKind::kKeyIndex, 0), change.tokens, read, change.index);
}

void HeadRows::revert(Ftl& ftl) const {
  if (list_ != GroupMap::kNoList) ftl.cut(list_, groups_);
  if (embedding_list_ != GroupMap::kNoList) ftl.cut(embedding_list_, embedding_);
  if (index_) index_->revert(ftl);
}

// Copies `count` rows from `first` on. Rows before tokens_ come from groups and staged rows, later rows from
// `added_rows`. Returns false if a group is lost.
bool HeadRows::read_rows(Ftl& ftl, std::span<const std::byte> added_rows, std::uint32_t first, std::uint32_t count,
                         std::byte* out) const {
  Page page;
  for (std::uint32_t token = first; token < first + count;) {
    const std::uint32_t group = token / tokens_per_group();
    std::uint32_t end = std::min(first + count, tokens_);
    const std::byte* from = nullptr;
    if (token >= tokens_) {
      end = first + count;
      from = added_rows.data() + std::size_t{token - tokens_} * row_bytes();
    } else if (group < groups_) {
      end = std::min(end, (group + 1) * tokens_per_group());
      const GroupRead read{list_, group, page.data()};
      const auto result = ftl.read(std::span(&read, 1), ftl.now(), Sink::kFirmware);
      if (!result.whole) return false;
      from = page.data() + std::size_t{token % tokens_per_group()} * row_bytes();
    } else {
      from = staged_.data() + std::size_t{token - tokens_in_groups()} * row_bytes();
    }
    std::memcpy(out, from, std::size_t{end - token} * row_bytes());
    out += std::size_t{end - token} * row_bytes();
    token = end;
  }
  return true;
}

// The same rows as binary16 numbers.
bool HeadRows::read_halves(Ftl& ftl, std::span<const std::byte> added_rows, std::uint32_t first, std::uint32_t count,
                           std::byte* out) const {
  if (format() == nvme::kBinary16) return read_rows(ftl, added_rows, first, count, out);
  std::vector<std::byte> rows(std::size_t{count} * row_bytes());
  if (!read_rows(ftl, added_rows, first, count, rows.data())) return false;
  std::vector<std::uint16_t> halves(std::size_t{count} * head_dim());
  decode_rows(format(), head_dim(), rows, halves.data());
  std::memcpy(out, halves.data(), std::size_t{count} * half_bytes());
  return true;
}

// Writes the embedding-indexed spans that are now whole. If a group is lost, later tokens get no such index, and SparF
// reads their rows instead.
void HeadRows::index_spans(Ftl& ftl, std::span<const std::byte> rows, Change& change) {
  EmbeddingSpan span = EmbeddingSpan::first(head_dim());
  std::vector<std::byte> tokens;
  for (; span.end() <= change.tokens; span = span.next()) {
    if (span.first_page < embedding_) continue;
    tokens.resize(std::size_t{span.tokens()} * half_bytes());
    if (!read_halves(ftl, rows, span.first_token, span.tokens(), tokens.data())) return;
    if (embedding_list_ == GroupMap::kNoList) embedding_list_ = ftl.create_list();
    Page page;
    for (std::uint32_t i = 0; i < span.pages(); ++i) {
      for (std::uint32_t row = 0; row < span.rows_per_page; ++row) {
        const std::size_t first = span.first_token_of(i) - span.first_token;
        const std::byte* from = tokens.data() + first * half_bytes() + std::size_t{span.first_row(i) + row} * 2;
        std::byte* to = page.data() + std::size_t{row} * span.row_bytes();
        for (std::uint32_t t = 0; t < span.block_tokens(); ++t)
          std::memcpy(to + t * 2, from + std::size_t{t} * half_bytes(), 2);
      }
      ftl.put(embedding_list_, owner(GroupKind::kKeyRows, span.first_page + i), page, {});
    }
    change.embedding = span.first_page + span.pages();
  }
}

bool HeadRows::prepare_truncate(Ftl& ftl, std::uint32_t tokens, Change& change) const {
  change.groups = std::min(tokens / tokens_per_group(), groups_);
  change.embedding = std::min(embedding_pages(head_dim(), tokens), embedding_);
  change.tokens = tokens;
  const std::uint32_t first = change.groups * tokens_per_group();
  change.staged.resize(std::size_t{tokens - first} * row_bytes());
  if (!read_rows(ftl, {}, first, tokens - first, change.staged.data())) return false;
  if (change.groups == groups_) change.kept_staged = change.staged.size();
  if (index_) change.index = index_->prepare_truncate(ftl, tokens);
  change.sums = sums_;
  return subtract_rows(ftl, tokens, tokens_, change.sums);
}

// Subtracts the rows of the tokens [first, end) from `sums`, unless it is empty. Returns false if a group is lost.
bool HeadRows::subtract_rows(Ftl& ftl, std::uint32_t first, std::uint32_t end, std::vector<std::int64_t>& sums) const {
  if (sums.empty()) return true;
  std::vector<std::byte> row(row_bytes() * std::size_t{tokens_per_group()});
  for (std::uint32_t token = first; token < end;) {
    const std::uint32_t count = std::min(tokens_per_group() - token % tokens_per_group(), end - token);
    if (!read_rows(ftl, {}, token, count, row.data())) return false;
    add_rows(format(), std::span(row).first(std::size_t{count} * row_bytes()), sums, -1);
    token += count;
  }
  return true;
}

bool HeadRows::prepare_remove(Ftl& ftl, std::uint32_t tokens, Change& change) const {
  const std::uint32_t first = tokens_per_group();
  const std::uint32_t stored = std::max(tokens_in_groups(), first);  // staged rows are removed from here on
  change.removed = std::min(tokens / tokens_per_group(), stored / tokens_per_group() - 1);
  change.groups = groups_ - change.removed;
  change.tokens = tokens_ - tokens;
  change.staged = staged_;
  change.kept_staged = staged_.size();
  if (const std::uint32_t left = tokens - change.removed * tokens_per_group(); left > 0) {
    change.kept_staged = std::size_t{stored - tokens_in_groups()} * row_bytes();
    const auto from = change.staged.begin() + static_cast<std::ptrdiff_t>(change.kept_staged);
    change.staged.erase(from, from + std::ptrdiff_t{left} * row_bytes());
  }
  if (index_) change.index = index_->emptied();
  change.sums = sums_;
  return subtract_rows(ftl, first, first + tokens, change.sums);
}

void HeadRows::apply(Ftl& ftl, Change&& change) {
  if (change.removed > 0) ftl.remove_behind_first(list_, change.removed);
  if (change.groups < groups_ - change.removed) ftl.cut(list_, change.groups);
  if (change.embedding < embedding_) ftl.cut(embedding_list_, change.embedding);
  groups_ = change.groups;
  embedding_ = change.embedding;
  if (index_) index_->apply(ftl, std::move(change.index));
  staged_ = std::move(change.staged);
  sums_ = std::move(change.sums);
  tokens_ = change.tokens;
  dirty_ = true;
  clean_staged_ = std::min(clean_staged_, change.kept_staged);
}

HeadRows HeadRows::fork(Ftl& ftl, const Name& name) const {
  HeadRows copy(name, layout_);
  copy.tokens_ = tokens_;
  copy.groups_ = groups_;
  copy.embedding_ = embedding_;
  copy.staged_ = staged_;
  copy.sums_ = sums_;
  if (list_ != GroupMap::kNoList) copy.list_ = ftl.fork_list(list_, groups_);
  if (embedding_list_ != GroupMap::kNoList) copy.embedding_list_ = ftl.fork_list(embedding_list_, embedding_);
  if (index_) copy.index_ = std::make_unique<KeyIndex>(index_->fork(ftl));
  return copy;
}

void HeadRows::claim(Ftl& ftl) const {
  if (list_ != GroupMap::kNoList) ftl.claim(list_);
  if (embedding_list_ != GroupMap::kNoList) ftl.claim(embedding_list_);
  if (index_) index_->claim(ftl);
}

void HeadRows::drop_unfinished(Ftl& ftl) const {
  const auto keep = [&ftl](ListId list, std::uint32_t count) {
    if (list == GroupMap::kNoList ? count > 0 : ftl.groups(list, count) < count) {
      throw std::runtime_error("a session owns a group that the journal does not know");
    }
    if (list != GroupMap::kNoList) ftl.cut(list, count);
  };
  keep(list_, groups_);
  keep(embedding_list_, embedding_);
  if (index_) keep(index_->list(), index_->pages());
}

void HeadRows::release(Ftl& ftl) {
  if (list_ != GroupMap::kNoList) ftl.drop_list(list_);
  if (embedding_list_ != GroupMap::kNoList) ftl.drop_list(embedding_list_);
  list_ = embedding_list_ = GroupMap::kNoList;
  if (index_) index_->release(ftl);
}

}  // namespace kvdrive
