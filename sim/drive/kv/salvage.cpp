// SPDX-License-Identifier: Apache-2.0
// Salvages the sessions of a damaged drive. Rows that verify are kept; others are cut off and reported.
//
// Spares record the order in which groups were written. The journal's last readable state is a state that the head
// really had. Groups that were written later continue it under four conditions: each is the newest for its index, no
// index of the known state was written again, no groups were removed from the middle in between, and the order
// increases along the head.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "kv/halves.hpp"
#include "kv/kv_store.hpp"

namespace kvdrive {
namespace {

auto key_of(const Owner& owner) { return std::tuple(owner.kind, owner.session, owner.layer, owner.head); }

GroupKind kind_of(abi::KvKind kind) { return kind == abi::kKeys ? GroupKind::kKeys : GroupKind::kValues; }

std::string text_of(const HeadRows::Name& name) {
  return "session " + std::to_string(name.session) + ", layer " + std::to_string(name.layer) + ", head " +
         std::to_string(name.head) + (name.kind == abi::kKeys ? ", K" : ", V");
}

// The groups that name a head as their owner, by index, the newest first.
std::span<const FoundGroup> groups_of(std::span<const FoundGroup> found, const HeadRows::Name& name) {
  const auto key = std::tuple(kind_of(name.kind), name.session, name.layer, name.head);
  const auto range =
      std::ranges::equal_range(found, key, {}, [](const FoundGroup& group) { return key_of(group.owner); });
  return {range.begin(), range.end()};
}

// The newest group of a family for one index, with an order in [first, last). Null if there is none.
const FoundGroup* newest(std::span<const FoundGroup> groups, Family family, std::uint32_t index, std::uint64_t first,
                         std::uint64_t last) {
  const auto places =
      std::ranges::equal_range(groups, index, {}, [](const FoundGroup& group) { return group.owner.index; });
  for (const FoundGroup& group : places) {
    if (group.family == family && first <= group.order && group.order < last) return &group;
  }
  return nullptr;
}

}  // namespace

void HeadRows::keep_groups(Ftl& ftl, std::uint32_t groups) {
  if (list_ != GroupMap::kNoList) ftl.cut(list_, groups);
  groups_ = groups;
  tokens_ = groups * tokens_per_group();
  staged_.clear();
  clean_staged_ = 0;
  dirty_ = true;
  drop_indexes(ftl);
  std::ranges::fill(sums_, 0);
  std::vector<std::byte> rows(std::size_t{tokens_per_group()} * row_bytes());
  for (std::uint32_t group = 0; group < groups && !sums_.empty(); ++group) {
    if (!read_rows(ftl, {}, group * tokens_per_group(), tokens_per_group(), rows.data())) return;
    add_rows(format(), rows, sums_, 1);
  }
}

void HeadRows::drop_indexes(Ftl& ftl) {
  if (embedding_list_ != GroupMap::kNoList) ftl.cut(embedding_list_, 0);
  embedding_ = 0;
  if (index_) index_->apply(ftl, index_->emptied());
  dirty_ = true;
}

void HeadRows::salvage(Ftl& ftl, std::span<const FoundGroup> found,
                       const std::function<void(const std::string&)>& report) {
  Salvage& salvage = ftl.salvage();
  const std::uint32_t known = groups_, tokens = tokens_;
  const std::uint64_t later = salvage.known_order();
  const bool listed = list_ != GroupMap::kNoList;
  const Family family = listed ? ftl.family(list_) : 0;
  const auto newest_at = [&](std::uint32_t position, std::uint64_t first, std::uint64_t last) {
    return newest(found, family, listed ? ftl.index(list_, position) : position, first, last);
  };
  std::uint32_t index = 0;
  bool continued = listed;
  for (; index < known; ++index) {
    if (newest_at(index, later, UINT64_MAX) != nullptr) continued = false;
    if (salvage.verified(list_, index)) continue;
    const FoundGroup* copy = newest_at(index, 0, later);  // a copy that garbage collection moved
    if (copy == nullptr || !salvage.verified(*copy)) break;
    salvage.adopt(list_, index, copy->unit);
  }
  const bool whole = index == known;
  for (std::uint64_t order = later; whole && continued; ++index) {
    const FoundGroup* next = newest_at(index, order, UINT64_MAX);
    const bool fits = next != nullptr && next == newest_at(index, 0, UINT64_MAX) &&
                      next->owner.removals == ftl.removals(list_) && salvage.verified(*next) &&
                      (index > known || salvage.begins_with(*next, staged_));
    if (!fits) break;
    salvage.adopt(list_, index, next->unit);
    order = next->order + 1;
  }
  bool indexed = true;
  for (std::uint32_t i = 0; i < embedding_ && indexed; ++i) indexed = salvage.verified(embedding_list_, i);
  for (std::uint32_t i = 0; index_ && i < index_->pages() && indexed; ++i) {
    indexed = salvage.verified(index_->list(), i);
  }
  if (!indexed) drop_indexes(ftl);
  if (index != known || !whole) keep_groups(ftl, index);
  if (!whole) {
    report(text_of(name_) + ": " + std::to_string(tokens_) + " of " + std::to_string(tokens) +
           " tokens are kept: the page of group " + std::to_string(index) + " or its spare is damaged");
  } else if (index > known) {
    report(text_of(name_) + ": " + std::to_string(tokens_) + " tokens came back from their spares, " +
           std::to_string(tokens) + " of them are in the part of the journal that can be read");
  } else if (!indexed) {
    report(text_of(name_) + ": an index of its K is damaged; the next append makes it again");
  }
}

void KvStore::salvage(std::span<const FoundGroup> found, const std::function<void(const std::string&)>& report) {
  add_found_heads(found);
  std::vector<std::uint32_t> numbers = sessions();
  for (const std::uint32_t number : numbers) {
    Session& session = sessions_.at(number);
    for (auto head = session.heads.begin(); head != session.heads.end();) {
      HeadRows& rows = head->second;
      count(session, rows, -1);
      rows.salvage(ftl_, groups_of(found, rows.name()), report);
      count(session, rows, 1);
      head = rows.tokens() == 0 ? erase(session, head) : std::next(head);
    }
    dirty_.insert(number);
    if (!session.heads.empty()) continue;
    report("session " + std::to_string(number) + ": nothing of it can be read");
    drop(number);
  }
}

// Adds heads that only spares name. Each is empty at first and gets the list of the newest group with index 0.
void KvStore::add_found_heads(std::span<const FoundGroup> found) {
  for (const FoundGroup& group : found) {
    const Owner& owner = group.owner;
    const bool rows = owner.kind == GroupKind::kKeys || owner.kind == GroupKind::kValues;
    const RowLayout layout = RowLayout::from(owner.row_bytes, owner.layout);
    if (!rows || owner.index != 0 || !layout.possible() || group.order < ftl_.salvage().known_order()) continue;
    const abi::KvKind kind = owner.kind == GroupKind::kKeys ? abi::kKeys : abi::kValues;
    if (find(owner.session, owner.layer, owner.head, kind) != nullptr || !ftl_.salvage().verified(group)) continue;
    HeadRows head({owner.session, owner.layer, owner.head, kind}, layout);
    head.take_list(ftl_.salvage().adopt_list(group.family));
    const std::uint32_t key = std::uint32_t{owner.layer} << 16 | std::uint32_t{owner.head} << 8 | kind;
    const auto added = sessions_[owner.session].heads.emplace(key, std::move(head)).first;
    ftl_.charge(static_cast<std::int64_t>(added->second.memory_bytes()));
  }
}

}  // namespace kvdrive
