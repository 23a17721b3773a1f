// SPDX-License-Identifier: Apache-2.0
// Erases dropped groups for good. The bands that still hold bytes of them are emptied and erased at once, instead of
// when they are needed again. Old contents that the file keeps of erased rows are discarded too.
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
  // durable after the next commit.
  void mark(std::span<const Family> families, std::uint32_t session);
  // Moves the live groups out of the marked bands and erases the bands. Throws std::runtime_error if one cannot be
  // emptied.
  void erase_marked();
  // Ends the erase that `mark` began: no copy of the groups remains, here or in any other band.
  void unmark() { state_.marks.finish(); }

  // For SANITIZE: erases every block that was programmed; durable afterwards. Precondition: no group is stored.
  void erase_all();

 private:
  bool holds_dropped(std::uint32_t band, std::span<const Family> families, std::uint32_t session) const;
  void forget_kept();
  void discard_unused_units(std::uint32_t band);

  FtlState& state_;
  WritePath& writes_;
  GarbageCollector& collector_;
};

}  // namespace kvdrive
