// SPDX-License-Identifier: Apache-2.0
#include "ftl/recovery.hpp"

#include <stdexcept>
#include <unordered_map>
#include <vector>

namespace kvdrive {

void Recovery::save(RecordWriter& writer, bool everything) const {
  state_.map.save(writer, everything);
  state_.queue.save(writer, everything);
  state_.bands.save(writer, everything);
  state_.marks.save(writer, everything);
}

void Recovery::committed() {
  state_.map.committed();
  state_.marks.committed();
  state_.queue.committed();
  state_.bands.committed();
}

void Recovery::finish_loading() {
  state_.bands.finish_loading();
  state_.map.finish_loading();
  state_.queue.finish_loading(state_.map);
  state_.map.for_each_unit([this](Family, const Extent& run) {
    const bool queued = WriteQueue::holds(run.unit);
    if (queued ? !state_.queue.holds_all(run.unit, run.count)
               : std::uint64_t{run.unit} + run.count > state_.geometry.units()) {
      throw std::runtime_error("a session owns a group that the journal does not know");
    }
    if (!queued) state_.bands.add_live(run.unit, run.count);
    state_.live += run.count;
  });
}

void Recovery::check(const std::function<void(const std::string&)>& report) const {
  std::vector<std::uint32_t> live(state_.geometry.blocks_per_die);
  std::unordered_map<Unit, std::string> taken;
  state_.map.for_each_unit([&](Family family, const Extent& run) {
    if (!WriteQueue::holds(run.unit)) state_.media.fetch(run.unit, run.count);
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const Unit unit = run.unit + i;
      const std::string name = "group " + std::to_string(run.index + i) + " of family " + std::to_string(family);
      const auto [other, first] = taken.emplace(unit, name);
      if (!first) report(name + ": " + other->second + " claims the same unit");
      if (WriteQueue::holds(unit)) continue;
      const Place place = state_.bands.place(unit);
      ++live[place.band];
      if (place.row >= state_.bands.at(place.band).rows) report(name + ": the unit was never programmed");
      const Spare spare = state_.media.spare(unit);
      if (!spare.valid()) {
        report(name + ": its spare is damaged");
      } else if (spare.family != family || spare.owner.index != run.index + i) {
        report(name + ": its spare describes another group");
      }
      if (state_.media.keeps_payload() && crc32c({state_.media.unit(unit), abi::kPageBytes}) != spare.data_crc) {
        report(name + ": its contents are damaged");
      }
    }
  });
  for (std::uint32_t band = 0; band < state_.geometry.blocks_per_die; ++band) {
    if (state_.bands.at(band).live_units != live[band]) {
      report("band " + std::to_string(band) + ": wrong number of live units");
    }
  }
}

}  // namespace kvdrive
