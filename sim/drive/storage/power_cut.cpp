// SPDX-License-Identifier: Apache-2.0
#include "storage/power_cut.hpp"

#include <algorithm>
#include <random>

namespace kvdrive {

void PowerCut::arm(std::uint64_t writes, std::uint64_t torn) {
  armed_ = true;
  left_ = writes;
  torn_ = torn;
}

void PowerCut::before_write(std::uint64_t offset, std::span<const std::byte> data, const Read& read,
                            const Write& write) {
  check();
  unsynced_.push_back({offset, std::vector<std::byte>(data.size())});
  read(offset, unsynced_.back().before);
  if (left_-- > 0) return;
  write(offset, data);
  leave_behind(write);
  lost_ = true;
  throw PowerLost();
}

// The file holds every write so far. This removes the sectors that did not survive, latest write first.
void PowerCut::leave_behind(const Write& write) {
  std::mt19937_64 random(torn_);
  for (auto written = unsynced_.rbegin(); written != unsynced_.rend(); ++written) {
    const bool kept = (random() & 1) != 0;
    const std::size_t sectors = written->before.size() / kSectorBytes;
    for (std::size_t sector = 0; sector < sectors; ++sector) {
      const bool last = written == unsynced_.rbegin();
      const bool chosen = torn_ % 2 == 0 ? kept : (random() & 1) != 0;
      const bool survives = torn_ > 1 ? chosen : !last || (torn_ == 1 && sector < sectors / 2);
      if (survives) continue;
      const std::size_t at = sector * kSectorBytes;
      write(written->offset + at, std::span(written->before).subspan(at, kSectorBytes));
    }
  }
}

void PowerCut::before_sync() {
  check();
  unsynced_.clear();
}

}  // namespace kvdrive
