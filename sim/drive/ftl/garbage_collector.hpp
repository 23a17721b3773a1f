// SPDX-License-Identifier: Apache-2.0
// Garbage collection and wear levelling move live groups out of a band, which is then erased and reused.
//
// Both run in the background as long as they keep up with the writes. Otherwise the writer waits for them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ftl/ftl_state.hpp"
#include "ftl/read_path.hpp"
#include "ftl/write_path.hpp"

namespace kvdrive {

class GarbageCollector {
 public:
  GarbageCollector(FtlState& state, WritePath& writes, ReadPath& reads)
      : state_(state), writes_(writes), reads_(reads) {}

  // Makes sure that a band is open and the reserve is complete. Returns false if no band can be freed for that.
  bool make_room();
  // To be called after a row was programmed. Moves so many groups that the next free band is ready in time.
  void collect_ahead();
  // Moves all live groups out of a full or failing band. Returns false if some cannot be moved.
  bool empty(std::uint32_t band);

 private:
  struct Moving {
    Family family;
    std::uint32_t index;
    Unit unit;
  };
  // The band that is being emptied, and its groups.
  struct Cleaning {
    bool under_way = false;
    std::uint32_t band = 0, erases = 0;
    bool levelling = false;
    std::vector<Moving> groups{};
    std::size_t next = 0;  // index of the first group that has not moved
  };

  bool collect();
  bool is_cleaning();
  void start_cleaning(std::uint32_t band, bool levelling);
  void find_lost(Cleaning& cleaning) const;
  void clean(std::uint64_t most);
  void move_groups(std::span<const Moving> groups);
  void move_group(const Moving& group);
  bool references(const Moving& group) const { return state_.map.holds(group.family, group.index, group.unit); }

  FtlState& state_;
  WritePath& writes_;
  ReadPath& reads_;
  Cleaning cleaning_;
  Ns background_ = 0;  // device time at which the reads for cleaning end
};

}  // namespace kvdrive
