// SPDX-License-Identifier: Apache-2.0
// State, wear, bad blocks and number of live units of every band; the choice of the band to program next and of the
// band to collect.
//
// A band with bad blocks has shorter rows: the first units of a row go round the dies that are left, the other units of
// the row stay unused.
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
    kFull,     // takes no programs until it is collected and erased
    kFailing,  // a program failed: its live units must move
    kEmptied,  // without live units; free after the next commit
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
  // Erase counts of bands may differ by this much before wear levelling moves data that does not change.
  static constexpr std::uint32_t kWearGap = 16;

  explicit BandTable(const Geometry& geometry, std::uint32_t erases = 0);

  const Band& at(std::uint32_t band) const { return bands_[band]; }
  // The number of dies whose blocks the band's present layout uses, and the die of block `number` of these.
  std::uint32_t dies(std::uint32_t band) const;
  std::uint32_t die(std::uint32_t band, std::uint32_t number) const;
  std::uint32_t row_units(std::uint32_t band) const { return dies(band) * geometry_.units_per_program(); }
  Place place(Unit unit) const;
  Unit first_unit(std::uint32_t band, std::uint32_t row) const {
    return band * geometry_.units_per_band() + row * geometry_.units_per_row();
  }

  std::optional<std::uint32_t> open_band() const { return open_; }
  std::uint32_t free_bands() const { return free_; }
  // The most live units at which garbage collection still finds something to gain.
  std::uint64_t room() const;

  // Opens the least worn free band, or the most worn one. Returns nothing when there is no free band.
  std::optional<std::uint32_t> open_next(bool most_worn);
  // The band to collect: a failing one, otherwise the one with the fewest live units. Nothing when nothing is to gain.
  std::optional<std::uint32_t> victim() const;
  bool has_garbage(std::uint32_t band) const {
    return bands_[band].live_units < row_units(band) * geometry_.rows_per_band();
  }
  // A full band whose erases are more than kWearGap behind those of the most worn band: its data do not change.
  std::optional<std::uint32_t> unchanging() const;

  void programmed(std::uint32_t band);
  // `count` units from `unit` on; they may belong to several bands.
  void add_live(Unit unit, std::uint32_t count) { change_live(unit, count, 1); }
  void remove_live(Unit unit, std::uint32_t count) { change_live(unit, count, -1); }
  // The block is bad: the band takes no more programs, and its live units stay readable until it is collected.
  void fail(std::uint32_t band, std::uint32_t die);
  // Precondition: no live units. The band is free after the next commit.
  void emptied(std::uint32_t band);
  // Precondition: the band is empty. The block cannot be erased and leaves the band's layout.
  void mark_bad(std::uint32_t band, std::uint32_t die);
  void erased(std::uint32_t band);

  // Marks a band as full that holds something, whatever was known of it.
  void adopt(std::uint32_t band);

  // Closes the open band: it counts as full.
  void close_open() {
    if (open_) set_state(*open_, State::kFull);
    open_.reset();
  }
  // Marks full bands without live units as emptied: they need no collection.
  void sweep();
  bool has_emptied() const { return emptied_ > 0; }

  void save(RecordWriter& writer, bool everything) const;
  void load(RecordReader& reader);
  // To be called after the last record. No band is open then, and no unit live.
  void finish_loading();
  // What was saved is durable.
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
  std::map<std::uint32_t, std::vector<BadBlock>> bad_;          // by band
  std::map<std::uint32_t, std::vector<std::uint32_t>> layout_;  // by band: its dies, where these are not all
  std::unordered_set<std::uint32_t> dirty_;
  std::optional<std::uint32_t> open_;
  std::uint32_t free_ = 0;
  std::uint64_t emptied_ = 0;
};

}  // namespace kvdrive
