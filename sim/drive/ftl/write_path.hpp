// SPDX-License-Identifier: Apache-2.0
// The write path: queued groups become rows of the open band; erased bands are opened in turn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "ftl/ftl_state.hpp"

namespace kvdrive {

class WritePath {
 public:
  explicit WritePath(FtlState& state) : state_(state) {}

  // Groups that fill a row of the open band, or of the next one when none is open.
  std::size_t row_units() const;
  // Programs the queued groups, as far as they fill rows.
  void program_rows();
  // Opens a free band. Returns false when none can be erased.
  bool open_next();
  // Returns false when none of the band's blocks can be erased.
  bool erase(std::uint32_t band);

  // True once after a band was opened for wear levelling.
  bool take_levelling_due() { return std::exchange(levelling_due_, false); }

  // Device time at which the last program, or erase, that was started ends.
  Ns programs_done() const { return programs_done_; }
  Ns erases_done() const { return erases_done_; }

 private:
  std::optional<std::uint32_t> open_band();
  bool program_row(std::uint32_t band);
  bool program_fails(std::uint32_t band);
  void place_queued(Unit first, std::uint32_t units);

  FtlState& state_;
  bool levelling_due_ = false;
  Ns programs_done_ = 0;
  Ns erases_done_ = 0;
};

}  // namespace kvdrive
