// SPDX-License-Identifier: Apache-2.0
// The write path programs queued groups as rows of the open band, and opens erased bands in turn.
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

  // The number of groups that fill a row of the open band, or of the next band if none is open.
  std::size_t row_units() const;
  // Programs as many whole rows as the queued groups fill.
  void program_rows();
  // Opens a free band. Returns false if none can be erased.
  bool open_next();
  // Erases a band. Returns false if none of its blocks can be erased.
  bool erase(std::uint32_t band);

  // True once after each opening of a band for wear levelling.
  bool take_levelling_due() { return std::exchange(levelling_due_, false); }

  // Device time at which the last started program or erase ends.
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
