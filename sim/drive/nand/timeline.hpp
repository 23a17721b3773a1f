// SPDX-License-Identifier: Apache-2.0
// A bus in device time. Requests are served in the order of the calls. A later request may use a gap that earlier ones
// left.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "nand/timing.hpp"

namespace kvdrive {

class Timeline {
 public:
  // Occupies the first free interval of `length` ns that starts at `ready` or later; returns its end.
  Ns occupy(Ns ready, Ns length) {
    busy_ns_ += length;
    Ns start = ready;
    auto next = intervals_.upper_bound(start);
    if (next != intervals_.begin()) start = std::max(start, std::prev(next)->second);
    while (next != intervals_.end() && next->first < start + length) {
      start = std::max(start, next->second);
      ++next;
    }
    insert(start, start + length, next);
    return start + length;
  }

  // Drops intervals before `now`. Precondition of later calls: `ready` is `now` or later.
  void forget_before(Ns now) {
    while (!intervals_.empty() && intervals_.begin()->second <= now) intervals_.erase(intervals_.begin());
  }

  Ns busy_ns() const { return busy_ns_; }
  // The earliest time after which the bus is busy for at most `work` ns, as far as it is known.
  Ns when_left(Ns work) const {
    for (auto interval = intervals_.rbegin(); interval != intervals_.rend(); ++interval) {
      const Ns length = interval->second - interval->first;
      if (length > work) return interval->second - work;
      work -= length;
    }
    return 0;
  }

 private:
  using Intervals = std::map<Ns, Ns>;  // start to end; disjoint

  void insert(Ns start, Ns end, Intervals::iterator next) {
    if (next != intervals_.end() && next->first == end) {
      end = next->second;
      next = intervals_.erase(next);
    }
    if (next != intervals_.begin() && std::prev(next)->second == start) {
      std::prev(next)->second = end;
    } else if (start < end) {
      intervals_.emplace_hint(next, start, end);
    }
  }

  Intervals intervals_;
  Ns busy_ns_ = 0;
};

}  // namespace kvdrive
