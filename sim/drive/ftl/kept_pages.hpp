// SPDX-License-Identifier: Apache-2.0
// Pages that attention keeps in drive memory, by their physical unit, so that it need not read them again.
//
// A unit's page never changes until the unit is programmed again, and then it is forgotten here. Groups that garbage
// collection moves are read once more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <unordered_map>

#include "common/abi.hpp"
#include "ftl/write_queue.hpp"

namespace kvdrive {

class KeptPages {
 public:
  struct Counters {
    std::uint64_t hits = 0, misses = 0;  // pages
  };

  // Keeps up to `bytes`. `replaces`: the pages that were not used for the longest time make room for new ones.
  // Otherwise the first ones stay, which serves better what is read in the same order again and again.
  void set_budget(std::uint64_t bytes, bool replaces) {
    budget_ = bytes;
    replaces_ = replaces;
  }
  bool active() const { return budget_ > 0; }
  std::uint64_t bytes() const { return pages_.size() * abi::kPageBytes; }
  const Counters& counters() const { return counters_; }

  // The page of a unit, null if it is not here. It stays valid until `shrink`, `forget` or `clear`.
  const std::byte* find(Unit unit) {
    const auto found = pages_.find(unit);
    if (found == pages_.end()) {
      ++counters_.misses;
      return nullptr;
    }
    ++counters_.hits;
    order_.splice(order_.begin(), order_, found->second.place);
    return found->second.page->data();
  }

  // Keeps a copy of a unit's page. Beyond the budget it is dropped with the next `shrink`.
  void keep(Unit unit, const std::byte* page) {
    if (WriteQueue::holds(unit)) return;  // it is in memory, and gets another unit
    if (pages_.contains(unit) || (!replaces_ && bytes() + abi::kPageBytes > budget_)) return;
    order_.push_front(unit);
    Entry& entry = pages_[unit] = {std::make_unique<Page>(), order_.begin()};
    std::memcpy(entry.page->data(), page, abi::kPageBytes);
  }

  // Drops the pages that were not used for the longest time until the budget suffices.
  void shrink() {
    while (bytes() > budget_) {
      pages_.erase(order_.back());
      order_.pop_back();
    }
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
  };

  std::uint64_t budget_ = 0;
  bool replaces_ = true;
  std::unordered_map<Unit, Entry> pages_;
  std::list<Unit> order_;  // the page that was used last comes first
  Counters counters_;
};

}  // namespace kvdrive
