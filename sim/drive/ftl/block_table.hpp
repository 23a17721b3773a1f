// SPDX-License-Identifier: Apache-2.0
// Every block's state, wear and number of live units; which block of a die is programmed next and which is collected.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "nand/geometry.hpp"
#include "storage/records.hpp"

namespace kvdrive {

class BlockTable {
 public:
  enum class State : std::uint32_t {
    kFree,
    kOpen,     // being programmed
    kFull,     // no more programs until it is collected and erased
    kFailing,  // a program failed: its live units must move
    kEmptied,  // free as soon as the journal says so
    kBad,
  };

  struct Block {
    std::uint32_t erases = 0;
    std::uint32_t programs = 0;  // done since the erase
    State state = State::kFree;
    bool erased = false;
    std::uint32_t live_units = 0;
  };

  // Free blocks of a die that only collection may use: one to move units to, one in case that one fails.
  static constexpr std::uint32_t kReserve = 2;
  // Erase counts of a die's blocks may differ by this much before data that does not change is moved.
  static constexpr std::uint32_t kWearGap = 16;

  explicit BlockTable(const Geometry& geometry);

  Block& at(std::uint32_t die, std::uint32_t block) { return blocks_[die * geometry_.blocks_per_die + block]; }
  const Block& at(std::uint32_t die, std::uint32_t block) const {
    return blocks_[die * geometry_.blocks_per_die + block];
  }

  std::optional<std::uint32_t> open_block(std::uint32_t die) const;
  std::uint32_t free_blocks(std::uint32_t die) const { return dies_[die].free; }
  std::uint64_t live_units(std::uint32_t die) const { return dies_[die].live; }
  // Live units that a die takes so that collection always finds something to gain.
  std::uint64_t room(std::uint32_t die) const;

  // The least worn free block, now open; nothing when there is none.
  std::optional<std::uint32_t> open_next(std::uint32_t die);
  // The block to collect: failing ones first, then the fewest live units. Nothing when nothing would be gained.
  std::optional<std::uint32_t> victim(std::uint32_t die) const;
  // A full block that fell behind in wear by more than kWearGap.
  std::optional<std::uint32_t> unchanging(std::uint32_t die) const;

  void programmed(std::uint32_t die, std::uint32_t block);
  void add_live(Unit unit) { change_live(unit, 1); }
  void remove_live(Unit unit) { change_live(unit, -1); }
  void fail(std::uint32_t die, std::uint32_t block);
  // Without live units: free after the next commit, or bad for good.
  void emptied(std::uint32_t die, std::uint32_t block);
  void mark_bad(std::uint32_t die, std::uint32_t block);
  void erased(std::uint32_t die, std::uint32_t block);

  // Full blocks without live units need no collection.
  void sweep();
  bool has_emptied() const { return emptied_ > 0; }

  void save(RecordWriter& writer, bool everything) const;
  void load(RecordReader& reader);
  // After the last record: nothing is open, nothing is live.
  void finish_loading();
  // What was saved is durable.
  void committed();

  struct Wear {
    std::uint32_t least = 0, most = 0, bad = 0;
    std::uint64_t erases = 0;
  };
  Wear wear() const;

 private:
  struct Die {
    std::uint32_t free = 0;
    std::uint32_t bad = 0;  // or failing
    std::uint64_t live = 0;
    std::optional<std::uint32_t> open;
  };
  struct Saved {
    std::uint32_t index, erases, programs;
    State state;
  };

  void change_live(Unit unit, int by);
  void set_state(std::uint32_t die, std::uint32_t block, State state);

  Geometry geometry_;
  std::vector<Block> blocks_;
  std::vector<Die> dies_;
  std::unordered_set<std::uint32_t> dirty_;
  std::uint64_t emptied_ = 0;
};

}  // namespace kvdrive
