// SPDX-License-Identifier: Apache-2.0
#include "ftl/group_map.hpp"

#include <algorithm>
#include <stdexcept>

namespace kvdrive {

ListId GroupMap::take(Family family) {
  if (unused_.empty()) {
    unused_.push_back(static_cast<ListId>(lists_.size()));
    lists_.emplace_back();
  }
  const ListId list = unused_.back();
  unused_.pop_back();
  lists_[list] = {};
  lists_[list].family = family;
  lists_[list].used = true;
  families_[family].push_back(list);
  mark_dirty(list);
  return list;
}

// Changes the runs of a list and updates the count of their memory.
template <typename Change>
void GroupMap::change(ListId list, Change change) {
  Extents& extents = lists_[list].extents;
  run_bytes_ -= extents.memory_bytes();
  change(extents);
  run_bytes_ += extents.memory_bytes();
  mark_dirty(list);
}

ListId GroupMap::create() {
  while (families_.contains(next_family_)) ++next_family_;
  return take(next_family_++);
}

ListId GroupMap::fork(ListId list, std::uint32_t count) {
  const ListId copy = take(lists_[list].family);
  lists_[copy].removed = lists_[list].removed;
  lists_[copy].removals = lists_[list].removals;
  change(copy, [&](Extents& extents) {
    extents = lists_[list].extents;
    extents.cut(index(list, count));
    extents.forget_saved();
  });
  return copy;
}

// Calls `freed` with the units of the indexes [from, to) that no other list of the family holds.
void GroupMap::free(ListId list, std::uint32_t from, std::uint32_t to, const Freed& freed) const {
  const List& one = lists_[list];
  std::vector<ListId> others = families_.at(one.family);
  std::erase(others, list);
  one.extents.for_each(from, to, [&](const Extent& run) { for_each_unshared(others, run, freed); });
}

void GroupMap::cut(ListId list, std::uint32_t from, const Freed& freed) {
  const std::uint32_t first = index(list, from);
  free(list, first, UINT32_MAX, freed);
  change(list, [first](Extents& extents) { extents.cut(first); });
}

void GroupMap::remove_behind_first(ListId list, std::uint32_t count, const Freed& freed) {
  const std::uint32_t first = index(list, 1);
  free(list, first, first + count, freed);
  lists_[list].removed += count;
  ++lists_[list].removals;
  change(list, [first, count](Extents& extents) { extents.remove(first, count); });
}

void GroupMap::drop(ListId list, const Freed& freed) {
  cut(list, 0, freed);
  List& one = lists_[list];
  auto& members = families_.at(one.family);
  std::erase(members, list);
  if (members.empty()) families_.erase(one.family);
  change(list, [](Extents& extents) { extents = {}; });
  one.used = false;
  unused_.push_back(list);
}

void GroupMap::for_each_unshared(const std::vector<ListId>& others, const Extent& run, const Freed& visit) const {
  if (others.empty()) {
    visit(run.unit, run.count);
    return;
  }
  for (std::uint32_t i = 0; i < run.count; ++i) {
    const auto holds = [&](ListId other) { return lists_[other].extents.at(run.index + i) == run.unit + i; };
    if (std::ranges::none_of(others, holds)) visit(run.unit + i, 1);
  }
}

void GroupMap::set(ListId list, std::uint32_t position, Unit unit) {
  const std::uint32_t at = index(list, position);
  change(list, [=](Extents& extents) { extents.set(at, 1, unit); });
}

void GroupMap::remove(ListId list, std::uint32_t position, const Freed& freed) {
  const std::uint32_t at = index(list, position);
  free(list, at, at + 1, freed);
  change(list, [at](Extents& extents) { extents.remove(at, 1); });
}

Unit GroupMap::unit(ListId list, std::uint32_t position) const {
  const auto found = at(list, position);
  if (!found) throw std::logic_error("the map does not hold the group");
  return *found;
}

bool GroupMap::holds(Family family, std::uint32_t index, Unit unit) const {
  const auto found = families_.find(family);
  return found != families_.end() &&
         std::ranges::any_of(found->second, [&](ListId list) { return lists_[list].extents.at(index) == unit; });
}

void GroupMap::move(Family family, std::uint32_t index, std::uint32_t count, Unit from, Unit to) {
  std::vector<Extent> held;
  for (const ListId list : families_.at(family)) {
    held.clear();
    lists_[list].extents.for_each(index, index + count, [&](const Extent& run) {
      if (run.unit - from == run.index - index) held.push_back(run);
    });
    for (const Extent& run : held) {
      change(list, [&](Extents& extents) { extents.set(run.index, run.count, to + (run.index - index)); });
    }
  }
}

void GroupMap::for_each_unit(const std::function<void(Family, const Extent&)>& visit) const {
  for (const auto& [family, members] : families_) {
    std::vector<ListId> before;
    for (const ListId list : members) {
      for (const Extent& run : lists_[list].extents.runs()) {
        std::uint32_t index = run.index;
        for_each_unshared(before, run, [&](Unit unit, std::uint32_t count) {
          index = run.index + (unit - run.unit);
          visit(family, {index, count, unit});
        });
      }
      before.push_back(list);
    }
  }
}

void GroupMap::mark_dirty(ListId list) {
  ++changes_;
  if (lists_[list].dirty) return;
  lists_[list].dirty = true;
  dirty_.push_back(list);
}

void GroupMap::save(RecordWriter& writer, bool everything) const {
  const auto put = [&](ListId number) {
    const List& list = lists_[number];
    if (!list.used) return;
    const auto runs = list.extents.runs();
    const std::size_t kept = everything ? 0 : list.extents.unsaved();
    writer.put(RecordType::kList);
    writer.put(Saved{number, list.family, list.removed, list.removals, static_cast<std::uint32_t>(kept),
                     static_cast<std::uint32_t>(runs.size() - kept)});
    writer.put_all(runs.subspan(kept));
    writer.end_record();
  };
  if (everything) {
    for (ListId list = 0; list < lists_.size(); ++list) put(list);
  } else {
    for (const ListId list : dirty_) put(list);
  }
}

void GroupMap::committed() {
  for (const ListId list : dirty_) {
    lists_[list].dirty = false;
    lists_[list].extents.saved();
  }
  dirty_.clear();
}

void GroupMap::load(RecordReader& reader) {
  const auto saved = reader.get<Saved>();
  if (saved.list > lists_.size() + kListsAtOnce) throw std::runtime_error("a list record is damaged");
  if (saved.list >= lists_.size()) lists_.resize(saved.list + std::size_t{1});
  List& list = lists_[saved.list];
  if (list.used && list.family != saved.family) list = {};  // a later list has reused the number
  list.used = true;
  list.family = saved.family;
  list.removed = saved.removed;
  list.removals = saved.removals;
  list.extents.load(saved.kept, reader.get_all<Extent>(saved.added));  // finish_loading counts the memory
  if (saved.removed > kMostRemoved) throw std::runtime_error("a list record is damaged");
  list.extents.for_each(1, 1 + saved.removed, [](const Extent& run) {
    if (run.count > 0) throw std::runtime_error("a list record holds a group that was removed");
  });
  next_family_ = std::max(next_family_, saved.family + 1);
}

void GroupMap::claim(ListId list) {
  if (!exists(list) || lists_[list].claimed) throw std::runtime_error("a session owns a list that the journal lost");
  lists_[list].claimed = true;
}

void GroupMap::finish_loading() {
  for (ListId number = 0; number < lists_.size(); ++number) {
    List& list = lists_[number];
    if (list.used && list.claimed) {
      families_[list.family].push_back(number);
      run_bytes_ += list.extents.memory_bytes();
    } else {
      list = {};
      unused_.push_back(number);
    }
  }
}

std::uint64_t GroupMap::runs() const {
  std::uint64_t runs = 0;
  for (const List& list : lists_) runs += list.extents.runs().size();
  return runs;
}

}  // namespace kvdrive
