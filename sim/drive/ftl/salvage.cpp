// SPDX-License-Identifier: Apache-2.0
#include "ftl/salvage.hpp"

#include <algorithm>
#include <tuple>

namespace kvdrive {

std::vector<FoundGroup> Salvage::scan() {
  const Geometry& geometry = state_.geometry;
  std::vector<FoundGroup> found;
  std::vector<Spare> spares(geometry.units_per_row());
  for (std::uint32_t band = 0; band < geometry.blocks_per_die; ++band) {
    for (std::uint32_t row = 0; row < geometry.rows_per_band(); ++row) {
      const Unit first = state_.bands.first_unit(band, row);
      state_.media.copy(first, geometry.units_per_row(), {}, spares);
      for (std::uint32_t i = 0; i < spares.size(); ++i) {
        const Spare& spare = spares[i];
        if (!spare.valid()) continue;
        found.push_back({first + i, spare.family, spare.order, spare.owner});
        state_.order.skip(spare.order + 1);
        state_.map.skip_families(spare.family + 1);
      }
    }
  }
  std::ranges::sort(found, {}, [](const FoundGroup& group) {
    const Owner& owner = group.owner;
    return std::tuple(owner.kind, owner.session, owner.layer, owner.head, owner.index, ~group.order);
  });
  return found;
}

void Salvage::adopt_bands() {
  state_.map.for_each_unit([this](Family, const Extent& run) {
    if (WriteQueue::holds(run.unit)) return;
    const std::uint32_t units = state_.geometry.units_per_band();
    for (std::uint32_t band = run.unit / units; band <= (run.unit + run.count - 1) / units; ++band) {
      if (state_.bands.at(band).state == BandTable::State::kFree) state_.bands.adopt(band);
    }
  });
}

void Salvage::adopt(ListId list, std::uint32_t index, Unit unit) {
  const Family family = state_.map.family(list);
  const auto old = state_.map.at(list, index);
  const std::uint32_t stored = state_.map.index(list, index);
  const bool shared = state_.map.holds(family, stored, unit);
  state_.map.set(list, index, unit);
  if (old && !state_.map.holds(family, stored, *old)) state_.free_units(*old, 1);
  if (shared) return;
  state_.bands.adopt(unit / state_.geometry.units_per_band());
  state_.bands.add_live(unit, 1);
  ++state_.live;
}

bool Salvage::verified(ListId list, std::uint32_t index) const {
  const auto unit = state_.map.at(list, index);
  if (!unit) return false;
  if (WriteQueue::holds(*unit)) return true;       // the journal's checksums covered the contents
  bool good = order(list, index) < known_order();  // not rewritten later by another state of the list
  const Extent run{state_.map.index(list, index), 1, *unit};
  recovery_.verify(state_.map.family(list), run, [&good](std::uint32_t, const char*) { good = false; });
  return good;
}

bool Salvage::verified(const FoundGroup& group) const {
  bool good = true;
  const Extent run{group.owner.index, 1, group.unit};
  recovery_.verify(group.family, run, [&good](std::uint32_t, const char*) { good = false; });
  return good;
}

std::uint64_t Salvage::order(ListId list, std::uint32_t index) const {
  const Unit unit = state_.map.unit(list, index);
  if (WriteQueue::holds(unit)) return state_.queue.group(unit).order;
  Spare spare;
  state_.media.copy(unit, 1, {}, std::span(&spare, 1));
  return spare.order;
}

bool Salvage::begins_with(const FoundGroup& group, std::span<const std::byte> bytes) const {
  if (!state_.media.keeps_payload()) return true;
  AlignedBuffer page(abi::kPageBytes);
  Spare spare;
  state_.media.copy(group.unit, 1, page.span(), std::span(&spare, 1));
  return std::ranges::equal(bytes.first(std::min(bytes.size(), page.size())),
                            page.span().first(std::min(bytes.size(), page.size())));
}

}  // namespace kvdrive
