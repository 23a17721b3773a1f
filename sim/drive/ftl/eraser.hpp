// SPDX-License-Identifier: Apache-2.0
// Erasing what was forgotten: the bands that still hold bytes of it are emptied and erased at once, not when they are
// needed again. What the file still has of rows that are erased already goes with it.
#pragma once

#include <cstdint>
#include <span>

#include "ftl/ftl_state.hpp"
#include "ftl/garbage_collector.hpp"
#include "ftl/write_path.hpp"

namespace kvdrive {

class Eraser {
 public:
  Eraser(FtlState& state, WritePath& writes, GarbageCollector& collector)
      : state_(state), writes_(writes), collector_(collector) {}

  // Marks the bands that hold unreferenced groups of these families (in ascending order) or of `session`. The marks are
  // durable from the next commit on.
  void mark(std::span<const Family> families, std::uint32_t session);
  // Moves the live groups out of the marked bands and erases these. Throws std::runtime_error when one cannot be
  // emptied.
  void erase_marked();
  // Ends the erase that `mark` began: no copy of the groups remains, here or in any other band.
  void unmark() { state_.marks.finish(); }

  // Sanitizing: erases every block that held something; durable afterwards. Precondition: nothing is stored.
  void erase_all();

 private:
  bool holds_forgotten(std::uint32_t band, std::span<const Family> families, std::uint32_t session) const;
  void discard_unused_units(std::uint32_t band);

  FtlState& state_;
  WritePath& writes_;
  GarbageCollector& collector_;
};

}  // namespace kvdrive
