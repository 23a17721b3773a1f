// SPDX-License-Identifier: Apache-2.0
// Pages that attention keeps in drive memory, by their physical unit, so that it need not read them again.
//
// A unit's page never changes while a list references the unit. Afterwards it is forgotten here. Groups that garbage
// collection moves are read once more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "common/abi.hpp"
#include "ftl/write_queue.hpp"

namespace kvdrive {

class KeptPages {
 public:
  struct Counters {
    std::uint64_t hits = 0, misses = 0;  // pages
  };

  // Keeps up to `bytes`. `replaces`: the pages that were not used for the longest time make room for new ones, but
  // never pages that the present command used. Otherwise the first ones stay, which serves better what is read in the
  // same order again and again.
  void set_budget(std::uint64_t bytes, bool replaces) {
    budget_ = bytes;
    replaces_ = replaces;
  }
  bool active() const { return budget_ > 0; }
  std::uint64_t bytes() const { return kept_ * abi::kPageBytes; }
  const Counters& counters() const { return counters_; }

  // From here on a new command uses pages.
  void begin_command() { ++command_; }

  // The page of a unit, null if it is not here. It stays valid until the command ends, or `forget` or `clear`, because
  // pages that the present command used make no room for others.
  const std::byte* find(Unit unit) {
    const Place place = place_of(unit);
    if (place == kNowhere) {
      ++counters_.misses;
      return nullptr;
    }
    ++counters_.hits;
    places_[place].command = command_;
    unlink(place);
    link_first(place);
    return page(place);
  }

  // Keeps a copy of a unit's page if there is room for it. Returns the copy, which is valid as a page of `find` is;
  // null if it is not kept now.
  const std::byte* keep(Unit unit, const std::byte* contents) {
    if (WriteQueue::holds(unit)) return nullptr;  // it is in memory, and gets another unit
    if (place_of(unit) != kNowhere || !make_room()) return nullptr;
    const Place place = take_place();
    places_[place].unit = unit;
    places_[place].command = command_;
    link_first(place);
    place_at(unit) = place;
    ++kept_;
    return static_cast<const std::byte*>(std::memcpy(page(place), contents, abi::kPageBytes));
  }

  void forget(Unit first, std::uint32_t count) {
    for (Unit unit = first; unit < first + count && kept_ > 0; ++unit) {
      if (const Place place = place_of(unit); place != kNowhere) drop(place);
    }
  }
  void clear() {
    table_.clear();
    blocks_.clear();
    places_.resize(1);
    places_[kNowhere] = {};
    free_.clear();
    kept_ = 0;
  }

 private:
  using Place = std::uint32_t;
  static constexpr Place kNowhere = 0;  // its neighbours are the pages that were used last and longest ago
  static constexpr std::size_t kTableUnits = 1024, kBlockPages = 64;

  struct Entry {
    Unit unit = 0;
    Place newer = kNowhere, older = kNowhere;
    std::uint64_t command = 0;  // that used the page last
  };
  using Block = std::array<std::byte, kBlockPages * abi::kPageBytes>;
  using Table = std::array<Place, kTableUnits>;

  Place place_of(Unit unit) const {
    const std::size_t part = unit / kTableUnits;
    return part < table_.size() && table_[part] ? (*table_[part])[unit % kTableUnits] : kNowhere;
  }
  Place& place_at(Unit unit) {
    const std::size_t part = unit / kTableUnits;
    if (part >= table_.size()) table_.resize(part + 1);
    if (!table_[part]) table_[part] = std::make_unique<Table>();
    return (*table_[part])[unit % kTableUnits];
  }

  std::byte* page(Place place) {
    return blocks_[(place - 1) / kBlockPages]->data() + (place - 1) % kBlockPages * abi::kPageBytes;
  }
  Place take_place() {
    if (free_.empty()) {
      if ((places_.size() - 1) % kBlockPages == 0) blocks_.push_back(std::make_unique_for_overwrite<Block>());
      places_.emplace_back();
      return static_cast<Place>(places_.size() - 1);
    }
    const Place place = free_.back();
    free_.pop_back();
    return place;
  }

  void unlink(Place place) {
    const Entry& entry = places_[place];
    places_[entry.newer].older = entry.older;
    places_[entry.older].newer = entry.newer;
  }
  void link_first(Place place) {
    const Place second = places_[kNowhere].older;
    places_[place].newer = kNowhere;
    places_[place].older = second;
    places_[second].newer = place;
    places_[kNowhere].older = place;
  }
  void drop(Place place) {
    unlink(place);
    place_at(places_[place].unit) = kNowhere;
    free_.push_back(place);
    --kept_;
  }

  // Returns false if no page may leave for a new one.
  bool make_room() {
    while (bytes() + abi::kPageBytes > budget_) {
      const Place oldest = places_[kNowhere].newer;
      if (!replaces_ || oldest == kNowhere || places_[oldest].command == command_) return false;
      drop(oldest);
    }
    return true;
  }

  std::uint64_t budget_ = 0;
  std::uint64_t command_ = 0;
  bool replaces_ = true;
  std::uint64_t kept_ = 0;                      // pages
  std::vector<std::unique_ptr<Table>> table_;   // the place of each unit's page
  std::vector<Entry> places_ = {Entry{}};       // a ring in order of use, through kNowhere
  std::vector<std::unique_ptr<Block>> blocks_;  // the pages of places 1 and on
  std::vector<Place> free_;
  Counters counters_;
};

}  // namespace kvdrive
