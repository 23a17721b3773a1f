// SPDX-License-Identifier: Apache-2.0
// Recovery: the translation layer's state as records of the journal, and the check that the flash agrees with it.
#pragma once

#include <functional>
#include <string>

#include "ftl/ftl_state.hpp"

namespace kvdrive {

class Recovery {
 public:
  explicit Recovery(FtlState& state) : state_(state) {}

  // Writes what changed since the last commit, or everything.
  void save(RecordWriter& writer, bool everything) const;
  // What `save` wrote is durable.
  void committed();
  // To be called after the last record. Throws std::runtime_error when a list references a group that no record holds.
  void finish_loading();
  // Compares map, spares, contents and bands; `report` gets a sentence per disagreement.
  void check(const std::function<void(const std::string&)>& report) const;
  // Compares the spares and contents of a run in the flash with the map; `report` gets each group that disagrees.
  void verify(Family family, const Extent& run,
              const std::function<void(std::uint32_t index, const char* what)>& report) const;

 private:
  FtlState& state_;
};

}  // namespace kvdrive
