// SPDX-License-Identifier: Apache-2.0
// Every band's state, wear, bad blocks and number of live units; which one is programmed next and which is collected.
//
// In a band without some of its blocks the first units of a row take turns over the dies that are left; the others are
// not used.
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
    kFull,     // no more programs until it is collected and erased
    kFailing,  // a program failed: its live units must move
    kEmptied,  // free as soon as the journal says so
    kBad,      // no block is left
  };

  struct Band {
    std::uint32_t erases = 0;
    std::uint32_t rows = 0;  // programmed since the erase
    State state = State::kFree;
    bool erased = false;
    std::uint32_t live_units = 0;
  };

  // Free bands that only collection may use: one to move units to, one in case that one fails.
  static constexpr std::uint32_t kReserve = 2;
  // Erase counts of bands may differ by this much before data that does not change is moved.
  static constexpr std::uint32_t kWearGap = 16;

  explicit BandTable(const Geometry& geometry, std::uint32_t erases = 0);

  const Band& at(std::uint32_t band) const { return bands_[band]; }
  // Dies whose blocks are in use since the band was opened.
  std::uint32_t dies(std::uint32_t band) const;
  std::uint32_t die(std::uint32_t band, std::uint32_t number) const;
  std::uint32_t row_units(std::uint32_t band) const { return dies(band) * geometry_.units_per_program(); }
  Place place(Unit unit) const;
  Unit first_unit(std::uint32_t band, std::uint32_t row) const {
    return band * geometry_.units_per_band() + row * geometry_.units_per_row();
  }

  std::optional<std::uint32_t> open_band() const { return open_; }
  std::uint32_t free_bands() const { return free_; }
  // Live units that the flash takes so that collection always finds something to gain.
  std::uint64_t room() const;

  // The least worn free band, or the most worn one, now open; nothing when there is none.
  std::optional<std::uint32_t> open_next(bool most_worn);
  // The band to collect: failing ones first, then the fewest live units. Nothing when nothing would be gained.
  std::optional<std::uint32_t> victim() const;
  bool has_garbage(std::uint32_t band) const {
    return bands_[band].live_units < row_units(band) * geometry_.rows_per_band();
  }
  // A full band that fell behind in wear by more than kWearGap.
  std::optional<std::uint32_t> unchanging() const;

  void programmed(std::uint32_t band);
  // `count` units from `unit` on; they may belong to several bands.
  void add_live(Unit unit, std::uint32_t count) { change_live(unit, count, 1); }
  void remove_live(Unit unit, std::uint32_t count) { change_live(unit, count, -1); }
  // The block takes no more programs. What the band holds stays where it is until it is collected.
  void fail(std::uint32_t band, std::uint32_t die);
  // Without live units: free after the next commit.
  void emptied(std::uint32_t band);
  // Of an empty band: the block cannot be erased.
  void mark_bad(std::uint32_t band, std::uint32_t die);
  void erased(std::uint32_t band);

  // The band that is programmed takes no more programs.
  void close_open() {
    if (open_) set_state(*open_, State::kFull);
    open_.reset();
  }
  // Full bands without live units need no collection.
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
    std::uint64_t erases = 0;  // of blocks
  };
  Wear wear() const;
  std::uint64_t memory_bytes() const;

 private:
  struct BadBlock {
    std::uint32_t die;
    bool pending;  // the band's present contents were laid out with it
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
  std::map<std::uint32_t, std::vector<std::uint32_t>> layout_;  // the dies of a band that has not all of them
  std::unordered_set<std::uint32_t> dirty_;
  std::optional<std::uint32_t> open_;
  std::uint32_t free_ = 0;
  std::uint64_t emptied_ = 0;
};

}  // namespace kvdrive
