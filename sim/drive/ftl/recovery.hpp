// SPDX-License-Identifier: Apache-2.0
// Recovery writes the translation layer's state as records of the journal, and checks that the flash agrees with it.
#pragma once

#include <functional>
#include <string>

#include "ftl/ftl_state.hpp"

namespace kvdrive {

class Recovery {
 public:
  explicit Recovery(FtlState& state) : state_(state) {}

  // Writes the changes since the last commit, or the whole state if `everything`.
  void save(RecordWriter& writer, bool everything) const;
  // To be called when the saved records are durable.
  void committed();
  // To be called after the last record. Throws std::runtime_error if a list references a group that no record holds.
  void finish_loading();
  // Compares map, spares, contents and bands. `report` gets one sentence for each disagreement.
  void check(const std::function<void(const std::string&)>& report) const;
  // Compares spares and contents of a run with the map. `report` gets each group that disagrees.
  void verify(Family family, const Extent& run,
              const std::function<void(std::uint32_t index, const char* what)>& report) const;

 private:
  FtlState& state_;
};

}  // namespace kvdrive
