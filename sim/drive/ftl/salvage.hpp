// SPDX-License-Identifier: Apache-2.0
// Salvage finds groups again by their spares when the journal that named them is damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ftl/ftl_state.hpp"
#include "ftl/recovery.hpp"

namespace kvdrive {

// A unit and the contents of its spare.
struct FoundGroup {
  Unit unit = 0;
  Family family = 0;
  std::uint64_t order = 0;
  Owner owner;
};

class Salvage {
 public:
  Salvage(FtlState& state, const Recovery& recovery) : state_(state), recovery_(recovery) {}

  // Returns every unit with a valid spare, ordered by kind, session, layer, head and index, the newest first. Groups
  // that are stored later get a higher order than all of them.
  std::vector<FoundGroup> scan();
  // Marks bands that hold groups of the map as full, whatever the journal says about them.
  void adopt_bands();
  ListId adopt_list(Family family) { return state_.map.create_in(family); }
  // Maps the list's group to this unit.
  void adopt(ListId list, std::uint32_t index, Unit unit);

  // True if the spare and the contents match the group, and the journal knows the group.
  bool verified(ListId list, std::uint32_t index) const;
  bool verified(const FoundGroup& group) const;
  // The journal knows exactly the groups with an order below this one.
  std::uint64_t known_order() const { return state_.order.known(); }
  // The order in which the group was written (Spare::order).
  std::uint64_t order(ListId list, std::uint32_t index) const;
  // True if the group's page starts with these bytes.
  bool begins_with(const FoundGroup& group, std::span<const std::byte> bytes) const;

 private:
  FtlState& state_;
  const Recovery& recovery_;
};

}  // namespace kvdrive
