// SPDX-License-Identifier: Apache-2.0
#include "kv/head_rows.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kv/halves.hpp"

namespace kvdrive {
namespace {

using Page = std::array<std::byte, abi::kPageBytes>;

// Spreads the heads' groups over the dies from different starts.
std::uint32_t stripe_of(const Owner& owner) {
  const std::uint32_t start =
      owner.session * 7 + owner.layer * 5U + owner.head * 3U + static_cast<std::uint32_t>(owner.kind);
  return start + owner.index;
}

}  // namespace

void HeadRows::Change::release(Ftl& ftl) const {
  for (const GroupId group : added) ftl.release(group);
  for (const GroupId group : added_embedding) ftl.release(group);
}

HeadRows::HeadRows(const Name& name, std::uint32_t row_bytes, bool sparse)
    : name_(name), row_bytes_(row_bytes), sparse_(sparse) {
  if (sparse && name.kind == abi::kValues) sums_.resize(head_dim());
}

Owner HeadRows::owner(GroupKind kind, std::size_t index) const {
  return {name_.session, name_.layer, name_.head, kind, static_cast<std::uint32_t>(index)};
}

GroupId HeadRows::put(Ftl& ftl, GroupKind kind, std::size_t index, std::span<const std::byte> page) const {
  const Owner to = owner(kind, index);
  return ftl.put(to, stripe_of(to), page);
}

std::uint64_t HeadRows::groups_to_append(std::uint32_t tokens) const {
  const std::uint64_t groups = (tokens_ + tokens) / tokens_per_group() - groups_.size();
  if (!sparse_ || name_.kind != abi::kKeys) return groups;
  return groups + embedding_pages(head_dim(), tokens_ + tokens) - embedding_.size();
}

void HeadRows::prepare_append(Ftl& ftl, std::span<const std::byte> rows, Change& change) const {
  const std::size_t group_bytes = std::size_t{tokens_per_group()} * row_bytes_;
  change.kept = groups_.size();
  change.kept_embedding = embedding_.size();
  change.tokens = tokens_ + static_cast<std::uint32_t>(rows.size() / row_bytes_);
  change.tail.reserve(group_bytes);
  const std::size_t new_groups = (tail_.size() + rows.size()) / group_bytes;
  change.added.reserve(new_groups);  // nothing may throw between a put and its note
  const GroupKind kind = name_.kind == abi::kKeys ? GroupKind::kKeys : GroupKind::kValues;
  Page page{};
  std::size_t filled = tail_.size();
  if (filled > 0) std::memcpy(page.data(), tail_.data(), filled);
  std::size_t done = 0;
  for (std::size_t i = 0; i < new_groups; ++i) {
    std::memcpy(page.data() + filled, rows.data() + done, group_bytes - filled);
    done += group_bytes - filled;
    filled = 0;
    change.added.push_back(put(ftl, kind, groups_.size() + i, page));
  }
  if (new_groups == 0) change.tail = tail_;
  change.kept_tail = change.tail.size();
  change.tail.insert(change.tail.end(), rows.begin() + static_cast<std::ptrdiff_t>(done), rows.end());
  if (!sums_.empty()) {
    change.sums = sums_;
    add_rows(rows, change.sums, 1);
  }
  if (sparse_ && name_.kind == abi::kKeys) index_spans(ftl, rows, change);
}

// Rows from `first` on as they will be after `change`: those before tokens_ from groups and tail, the others from
// `added_rows`. False when a group is lost.
bool HeadRows::read_rows(Ftl& ftl, const Change& change, std::span<const std::byte> added_rows, std::uint32_t first,
                         std::uint32_t count, std::byte* out) const {
  Page page;
  for (std::uint32_t token = first; token < first + count;) {
    const std::uint32_t group = token / tokens_per_group();
    std::uint32_t end = std::min(first + count, tokens_);
    const std::byte* from = nullptr;
    if (token >= tokens_) {
      end = first + count;
      from = added_rows.data() + std::size_t{token - tokens_} * row_bytes_;
    } else if (group < change.kept) {
      end = std::min(end, (group + 1) * tokens_per_group());
      const GroupRead read{groups_[group], page.data()};
      const auto result = ftl.read(std::span(&read, 1), ftl.now(), Sink::kFirmware);
      if (!result.whole) return false;
      from = page.data() + std::size_t{token % tokens_per_group()} * row_bytes_;
    } else {
      from = tail_.data() + std::size_t{token - tokens_in_groups()} * row_bytes_;
    }
    std::memcpy(out, from, std::size_t{end - token} * row_bytes_);
    out += std::size_t{end - token} * row_bytes_;
    token = end;
  }
  return true;
}

// Writes the spans that are whole now. A lost group leaves the rest without index; SparF reads the rows then.
void HeadRows::index_spans(Ftl& ftl, std::span<const std::byte> rows, Change& change) const {
  EmbeddingSpan span = EmbeddingSpan::first(head_dim());
  std::vector<std::byte> tokens;
  change.added_embedding.reserve(embedding_pages(head_dim(), change.tokens) - embedding_.size());
  for (; span.end() <= change.tokens; span = span.next()) {
    if (span.first_page < embedding_.size()) continue;
    tokens.resize(std::size_t{span.tokens()} * row_bytes_);
    if (!read_rows(ftl, change, rows, span.first_token, span.tokens(), tokens.data())) return;
    Page page;
    for (std::uint32_t i = 0; i < span.pages(); ++i) {
      for (std::uint32_t row = 0; row < span.rows_per_page; ++row) {
        const std::byte* from = tokens.data() + std::size_t{i * span.rows_per_page + row} * 2;
        std::byte* to = page.data() + std::size_t{row} * span.row_bytes();
        for (std::uint32_t t = 0; t < span.tokens(); ++t)
          std::memcpy(to + t * 2, from + std::size_t{t} * row_bytes_, 2);
      }
      change.added_embedding.push_back(put(ftl, GroupKind::kKeyRows, span.first_page + i, page));
    }
  }
}

bool HeadRows::prepare_truncate(Ftl& ftl, std::uint32_t tokens, Change& change) const {
  change.kept = std::min<std::size_t>(tokens / tokens_per_group(), groups_.size());
  change.kept_embedding = std::min<std::size_t>(embedding_pages(head_dim(), tokens), embedding_.size());
  change.tokens = tokens;
  const auto first = static_cast<std::uint32_t>(change.kept) * tokens_per_group();
  change.tail.resize(std::size_t{tokens - first} * row_bytes_);
  Change now;
  now.kept = groups_.size();
  if (!read_rows(ftl, now, {}, first, tokens - first, change.tail.data())) return false;
  if (change.kept == groups_.size()) change.kept_tail = change.tail.size();
  if (sums_.empty()) return true;
  change.sums = sums_;
  std::vector<std::byte> row(row_bytes_ * std::size_t{tokens_per_group()});
  for (std::uint32_t token = tokens; token < tokens_;) {
    const std::uint32_t count = std::min(tokens_per_group() - token % tokens_per_group(), tokens_ - token);
    if (!read_rows(ftl, now, {}, token, count, row.data())) return false;
    add_rows(std::span(row).first(std::size_t{count} * row_bytes_), change.sums, -1);
    token += count;
  }
  return true;
}

void HeadRows::apply(Ftl& ftl, Change&& change) {
  for (std::size_t i = change.kept; i < groups_.size(); ++i) ftl.release(groups_[i]);
  for (std::size_t i = change.kept_embedding; i < embedding_.size(); ++i) ftl.release(embedding_[i]);
  groups_.resize(change.kept);
  groups_.insert(groups_.end(), change.added.begin(), change.added.end());
  embedding_.resize(change.kept_embedding);
  embedding_.insert(embedding_.end(), change.added_embedding.begin(), change.added_embedding.end());
  tail_ = std::move(change.tail);
  sums_ = std::move(change.sums);
  tokens_ = change.tokens;
  dirty_ = true;
  clean_groups_ = std::min(clean_groups_, change.kept);
  clean_embedding_ = std::min(clean_embedding_, change.kept_embedding);
  clean_tail_ = std::min(clean_tail_, change.kept_tail);
}

HeadRows HeadRows::fork(Ftl& ftl, const Name& name) const {
  HeadRows copy = *this;
  copy.name_ = name;
  copy.dirty_ = true;
  copy.clean_groups_ = copy.clean_embedding_ = copy.clean_tail_ = 0;
  copy.retain(ftl);
  return copy;
}

void HeadRows::retain(Ftl& ftl) const {
  for (const GroupId group : groups_) ftl.retain(group);
  for (const GroupId group : embedding_) ftl.retain(group);
}

void HeadRows::release(Ftl& ftl) const {
  for (const GroupId group : groups_) ftl.release(group);
  for (const GroupId group : embedding_) ftl.release(group);
}

}  // namespace kvdrive
