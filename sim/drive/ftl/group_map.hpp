// SPDX-License-Identifier: Apache-2.0
// The map from logical groups (a list and an index) to physical units. It is small for two reasons. It stores runs, and
// it needs no reverse map: the spare of a unit names family and index, and the unit is live if a list of that family
// maps the index to it.
//
// A list and its forks are a family. They share each unit until one of them changes its group.
//
// Groups can be removed from the middle of a list, behind its first group. The later groups then move to lower
// positions, but keep their index, which is the number in their spares. Members that take a list count positions;
// members that take a family count indexes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ftl/extents.hpp"
#include "storage/records.hpp"

namespace kvdrive {

using ListId = std::uint32_t;
using Family = std::uint32_t;

class GroupMap {
 public:
  using Freed = std::function<void(Unit unit, std::uint32_t count)>;
  static constexpr ListId kNoList = UINT32_MAX;

  ListId create();
  // Makes a list in a family that earlier lists may have had.
  ListId create_in(Family family) { return take(family); }
  // Makes a new list with the first `count` groups of another one.
  ListId fork(ListId list, std::uint32_t count);
  // Removes the groups from `from` on. Calls `freed` with the units that no other list of the family holds.
  void cut(ListId list, std::uint32_t from, const Freed& freed);
  // Removes the `count` groups behind the first one. Precondition: the list holds them.
  void remove_behind_first(ListId list, std::uint32_t count, const Freed& freed);
  void drop(ListId list, const Freed& freed);
  void set(ListId list, std::uint32_t position, Unit unit);
  // Removes one group. Precondition: the list holds it.
  void remove(ListId list, std::uint32_t position, const Freed& freed);

  bool exists(ListId list) const { return list < lists_.size() && lists_[list].used; }
  // Bytes of the list's runs.
  std::uint64_t run_bytes(ListId list) const { return lists_[list].extents.memory_bytes(); }
  // Visits the runs between two positions. `Extent::index` is the position of a run's first group; add `shift` to get
  // its index.
  template <typename Visit>
  void for_each(ListId list, std::uint32_t from, std::uint32_t to, Visit visit) const {
    const List& one = lists_[list];
    const auto part = [&](std::uint32_t first, std::uint32_t end, std::uint32_t shift) {
      if (first >= end || first > UINT32_MAX - shift) return;
      one.extents.for_each(first + shift, end > UINT32_MAX - shift ? UINT32_MAX : end + shift,
                           [&](const Extent& run) { visit(Extent{run.index - shift, run.count, run.unit}, shift); });
    };
    if (one.removed == 0) return part(from, to, 0);
    part(from, to < 1 ? to : 1, 0);
    part(from > 1 ? from : 1, to, one.removed);
  }
  std::uint32_t index(ListId list, std::uint32_t position) const {
    return position == 0 ? 0 : position + lists_[list].removed;
  }
  // The number of times that groups were removed from the middle.
  std::uint32_t removals(ListId list) const { return lists_[list].removals; }
  Family family(ListId list) const { return lists_[list].family; }
  Family next_family() const { return next_family_; }
  // Reserves all families below `family`: no new list gets one of them.
  void skip_families(Family family) { next_family_ = family > next_family_ ? family : next_family_; }
  std::optional<Unit> at(ListId list, std::uint32_t position) const {
    return lists_[list].extents.at(index(list, position));
  }
  // Like `at`, but throws std::logic_error if the list does not hold the group.
  Unit unit(ListId list, std::uint32_t position) const;
  // True if a list of the family maps the group to this unit.
  bool holds(Family family, std::uint32_t index, Unit unit) const;
  // Maps `count` groups from `index` on to the units from `to` on. Does so in every list of the family that maps them
  // to the units from `from` on.
  void move(Family family, std::uint32_t index, std::uint32_t count, Unit from, Unit to);
  // Visits every mapped unit once.
  void for_each_unit(const std::function<void(Family, const Extent&)>& visit) const;

  void save(RecordWriter& writer, bool everything) const;
  void committed();
  void load(RecordReader& reader);
  // To be called by each owner after all records are loaded. Throws std::runtime_error if the list does not exist or is
  // claimed already.
  void claim(ListId list);
  // Drops the lists that were not claimed.
  void finish_loading();

  std::uint64_t memory_bytes() const {
    return lists_.capacity() * sizeof(List) + run_bytes_ + families_.size() * kFamilyBytes;
  }
  // Memory of a list with one run; the length of the run does not matter.
  static constexpr std::uint64_t list_bytes() { return sizeof(List) + kFamilyBytes + 2 * sizeof(Extent); }
  std::uint64_t runs() const;
  // Counts changes: while it stays the same, every group keeps its unit, and no unit of a group is erased.
  std::uint64_t changes() const { return changes_; }

 private:
  struct List {
    Family family = 0;
    bool used = false;
    bool dirty = false;
    bool claimed = false;
    std::uint32_t removed = 0;   // indexes behind 0 that are not used any more
    std::uint32_t removals = 0;  // removals from the middle
    Extents extents;             // by index
  };
  struct Saved {
    ListId list;
    Family family;
    std::uint32_t removed, removals;
    std::uint32_t kept, added;
  };

  // The journal names lists in any order, but no new number is far beyond those in use. A larger step means damage.
  static constexpr std::size_t kListsAtOnce = 1 << 20;
  // Positions and removed groups are both below this number, so that indexes do not overflow.
  static constexpr std::uint32_t kMostRemoved = 1U << 31;

  // Memory of a family with one member: two nodes on the heap.
  static constexpr std::uint64_t kFamilyBytes =
      sizeof(Family) + sizeof(std::vector<ListId>) + sizeof(ListId) + 6 * sizeof(void*);

  ListId take(Family family);
  void free(ListId list, std::uint32_t from, std::uint32_t to, const Freed& freed) const;
  template <typename Change>
  void change(ListId list, Change change);
  void mark_dirty(ListId list);
  // Visits the units of `run` that no other list holds.
  void for_each_unshared(const std::vector<ListId>& others, const Extent& run, const Freed& visit) const;

  std::vector<List> lists_;
  std::vector<ListId> unused_;
  std::unordered_map<Family, std::vector<ListId>> families_;
  std::vector<ListId> dirty_;
  Family next_family_ = 0;
  std::uint64_t run_bytes_ = 0;
  std::uint64_t changes_ = 0;
};

}  // namespace kvdrive
