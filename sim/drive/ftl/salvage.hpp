// SPDX-License-Identifier: Apache-2.0
// Salvage: finding groups again by what their spares say, where the journal that named them is damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ftl/ftl_state.hpp"
#include "ftl/recovery.hpp"

namespace kvdrive {

// A unit and what its spare says.
struct FoundGroup {
  Unit unit = 0;
  Family family = 0;
  std::uint64_t order = 0;
  Owner owner;
};

class Salvage {
 public:
  Salvage(FtlState& state, const Recovery& recovery) : state_(state), recovery_(recovery) {}

  // Every unit with a valid spare, by kind, session, layer, head and index, the newest first. What is stored from now
  // on is newer.
  std::vector<FoundGroup> scan();
  // Bands that hold groups of the map are full, whatever the journal knew of them.
  void adopt_bands();
  ListId adopt_list(Family family) { return state_.map.create_in(family); }
  // The list's group is in this unit from now on.
  void adopt(ListId list, std::uint32_t index, Unit unit);

  // True if spare and contents are those of the group, and the journal knows it.
  bool verified(ListId list, std::uint32_t index) const;
  bool verified(const FoundGroup& group) const;
  // Groups below this order are those that the journal knows.
  std::uint64_t known_order() const { return state_.order.known(); }
  // When the group was written (Spare::order).
  std::uint64_t order(ListId list, std::uint32_t index) const;
  // True if the group's page begins with these bytes.
  bool begins_with(const FoundGroup& group, std::span<const std::byte> bytes) const;

 private:
  void release(Unit unit);

  FtlState& state_;
  const Recovery& recovery_;
};

}  // namespace kvdrive
