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
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

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
  std::uint64_t bytes() const { return pages_.size() * abi::kPageBytes; }
  const Counters& counters() const { return counters_; }

  // From here on a new command uses pages.
  void begin_command() { ++command_; }

  // The page of a unit, null if it is not here. It stays valid until the command ends, or `forget` or `clear`, because
  // pages that the present command used make no room for others.
  const std::byte* find(Unit unit) {
    const auto found = pages_.find(unit);
    if (found == pages_.end()) {
      ++counters_.misses;
      return nullptr;
    }
    ++counters_.hits;
    found->second.command = command_;
    order_.splice(order_.begin(), order_, found->second.place);
    return found->second.page->data();
  }

  // Keeps a copy of a unit's page if there is room for it. Returns the copy, which is valid as a page of `find` is;
  // null if it is not kept now.
  const std::byte* keep(Unit unit, const std::byte* page) {
    if (WriteQueue::holds(unit)) return nullptr;  // it is in memory, and gets another unit
    if (pages_.contains(unit) || !make_room()) return nullptr;
    auto copy = std::make_unique_for_overwrite<Page>();
    std::memcpy(copy->data(), page, abi::kPageBytes);
    order_.push_front(unit);
    return pages_.emplace(unit, Entry{std::move(copy), order_.begin(), command_}).first->second.page->data();
  }

  void forget(Unit first, std::uint32_t count) {
    for (Unit unit = first; unit < first + count && !pages_.empty(); ++unit) {
      const auto found = pages_.find(unit);
      if (found == pages_.end()) continue;
      order_.erase(found->second.place);
      pages_.erase(found);
    }
  }
  void clear() {
    pages_.clear();
    order_.clear();
  }

 private:
  using Page = std::array<std::byte, abi::kPageBytes>;
  struct Entry {
    std::unique_ptr<Page> page;
    std::list<Unit>::iterator place;
    std::uint64_t command;  // that used the page last
  };

  // Returns false if no page may leave for a new one.
  bool make_room() {
    while (bytes() + abi::kPageBytes > budget_) {
      if (!replaces_ || order_.empty()) return false;
      const auto oldest = pages_.find(order_.back());
      if (oldest->second.command == command_) return false;
      pages_.erase(oldest);
      order_.pop_back();
    }
    return true;
  }

  std::uint64_t budget_ = 0;
  std::uint64_t command_ = 0;
  bool replaces_ = true;
  std::unordered_map<Unit, Entry> pages_;
  std::list<Unit> order_;  // the page that was used last comes first
  Counters counters_;
};

}  // namespace kvdrive
