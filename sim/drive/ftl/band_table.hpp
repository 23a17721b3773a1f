// SPDX-License-Identifier: Apache-2.0
// The state, wear, bad blocks and number of live units of every band. It also chooses the band to program next and the
// band to collect.
//
// A band with bad blocks has shorter rows. The first units of a row fill the programs of the remaining dies, one die
// after the other; the other units of the row stay unused.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_set>
#include <vector>

#include "nand/geometry.hpp"
#include "storage/records.hpp"

namespace kvdrive {

class BandTable {
 public:
  enum class State : std::uint32_t {
    kFree,
    kOpen,     // being programmed
    kFull,     // accepts no programs until it was collected and erased
    kFailing,  // a program failed: its live units must move
    kEmptied,  // has no live units; free after the next commit
    kBad,      // all its blocks are bad
  };

  struct Band {
    std::uint32_t erases = 0;
    std::uint32_t rows = 0;  // rows programmed since the last erase
    State state = State::kFree;
    bool erased = false;
    std::uint32_t live_units = 0;
  };

  // Free bands that only garbage collection may use: one to move units to, and one in case the first fails.
  static constexpr std::uint32_t kReserve = 2;
  // The largest difference of erase counts before wear levelling moves data that do not change.
  static constexpr std::uint32_t kWearGap = 16;

  explicit BandTable(const Geometry& geometry, std::uint32_t erases = 0);

  const Band& at(std::uint32_t band) const { return bands_[band]; }
  // The number of dies whose blocks the band's present layout uses, and the die of the layout's block `number`.
  std::uint32_t dies(std::uint32_t band) const;
  std::uint32_t die(std::uint32_t band, std::uint32_t number) const;
  std::uint32_t row_units(std::uint32_t band) const { return dies(band) * geometry_.units_per_program(); }
  Place place(Unit unit) const;
  Unit first_unit(std::uint32_t band, std::uint32_t row) const {
    return band * geometry_.units_per_band() + row * geometry_.units_per_row();
  }

  std::optional<std::uint32_t> open_band() const { return open_; }
  std::uint32_t free_bands() const { return free_; }
  // The most live units of a band that is still worth collecting.
  std::uint64_t room() const;

  // Opens the least worn free band, or the most worn one if `most_worn`. Returns nothing if there is no free band.
  std::optional<std::uint32_t> open_next(bool most_worn);
  // Returns the band to collect: a failing one, otherwise the one with the fewest live units. Returns nothing if no
  // collection would gain space.
  std::optional<std::uint32_t> victim() const;
  bool has_garbage(std::uint32_t band) const {
    return bands_[band].live_units < row_units(band) * geometry_.rows_per_band();
  }
  // Returns a full band whose erase count is more than kWearGap below that of the most worn band: its data do not
  // change.
  std::optional<std::uint32_t> unchanging() const;

  void programmed(std::uint32_t band);
  // Counts `count` units from `unit` on as live. They may belong to several bands.
  void add_live(Unit unit, std::uint32_t count) { change_live(unit, count, 1); }
  void remove_live(Unit unit, std::uint32_t count) { change_live(unit, count, -1); }
  // Marks a block as bad. The band accepts no more programs; its live units stay readable until it is collected.
  void fail(std::uint32_t band, std::uint32_t die);
  // Precondition: the band has no live units. It is free after the next commit.
  void emptied(std::uint32_t band);
  // Removes a block that cannot be erased from the band's layout. Precondition: the band is empty.
  void mark_bad(std::uint32_t band, std::uint32_t die);
  void erased(std::uint32_t band);

  // Marks a band that holds groups as full, whatever the journal says about it.
  void adopt(std::uint32_t band);

  // Closes the open band; it counts as full from then on.
  void close_open() {
    if (open_) set_state(*open_, State::kFull);
    open_.reset();
  }
  // Marks full bands without live units as emptied, because they need no collection.
  void sweep();
  bool has_emptied() const { return emptied_ > 0; }

  void save(RecordWriter& writer, bool everything) const;
  void load(RecordReader& reader);
  // To be called after the last record. Precondition: no band is open and no unit is live.
  void finish_loading();
  // To be called when the saved state is durable.
  void committed();

  struct Wear {
    std::uint32_t least = 0, most = 0, bad = 0;
    std::uint64_t erases = 0;  // sum over all blocks
  };
  Wear wear() const;
  std::uint64_t memory_bytes() const;

 private:
  struct BadBlock {
    std::uint32_t die;
    bool pending;  // the band's present layout still uses the block
  };
  struct Saved {
    std::uint32_t band, erases, rows;
    State state;
    std::uint32_t bad_blocks;
  };
  struct SavedBad {
    std::uint32_t die, pending;
  };

  void change_live(Unit unit, std::uint32_t count, int by);
  void set_state(std::uint32_t band, State state);
  void close(std::uint32_t band) {
    if (open_ == band) open_.reset();
  }

  Geometry geometry_;
  std::vector<Band> bands_;
  std::map<std::uint32_t, std::vector<BadBlock>> bad_;          // key: band
  std::map<std::uint32_t, std::vector<std::uint32_t>> layout_;  // key: band; dies of a smaller layout
  std::unordered_set<std::uint32_t> dirty_;
  std::optional<std::uint32_t> open_;
  std::uint32_t free_ = 0;
  std::uint64_t emptied_ = 0;
};

}  // namespace kvdrive
