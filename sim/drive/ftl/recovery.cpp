// SPDX-License-Identifier: Apache-2.0
#include "ftl/recovery.hpp"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <vector>

namespace kvdrive {

void Recovery::save(RecordWriter& writer, bool everything) const {
  state_.map.save(writer, everything);
  state_.queue.save(writer, everything);
  state_.bands.save(writer, everything);
  state_.order.save(writer, state_.map, everything);
  state_.marks.save(writer, everything);
}

void Recovery::committed() {
  state_.map.committed();
  state_.order.committed(state_.map);
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

void Recovery::verify(Family family, const Extent& run,
                      const std::function<void(std::uint32_t index, const char* what)>& report) const {
  constexpr std::uint32_t kAtOnce = 256;
  const bool payload = state_.media.keeps_payload();
  AlignedBuffer contents(payload ? std::min(kAtOnce, run.count) * std::size_t{abi::kPageBytes} : 0);
  std::vector<Spare> spares(std::min(kAtOnce, run.count));
  for (std::uint32_t done = 0; done < run.count;) {
    const std::uint32_t count = std::min(kAtOnce, run.count - done);
    const auto pages = contents.span().first(payload ? count * std::size_t{abi::kPageBytes} : 0);
    state_.media.copy(run.unit + done, count, pages, spares);
    for (std::uint32_t i = 0; i < count; ++i) {
      const Spare& spare = spares[i];
      const std::uint32_t index = run.index + done + i;
      const auto page = pages.subspan(payload ? i * std::size_t{abi::kPageBytes} : 0, payload ? abi::kPageBytes : 0);
      if (!spare.valid()) {
        report(index, "its spare is damaged");
      } else if (spare.family != family || spare.owner.index != index) {
        report(index, "its spare describes another group");
      } else if (payload && crc32c(page) != spare.data_crc) {
        report(index, "its contents are damaged");
      }
    }
    done += count;
  }
}

void Recovery::check(const std::function<void(const std::string&)>& report) const {
  std::vector<std::uint32_t> live(state_.geometry.blocks_per_die);
  std::unordered_map<Unit, std::string> taken;
  state_.map.for_each_unit([&](Family family, const Extent& run) {
    const auto name = [family](std::uint32_t index) {
      return "group " + std::to_string(index) + " of family " + std::to_string(family);
    };
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const Unit unit = run.unit + i;
      const auto [other, first] = taken.emplace(unit, name(run.index + i));
      if (!first) report(name(run.index + i) + ": " + other->second + " claims the same unit");
      if (WriteQueue::holds(unit)) continue;
      const Place place = state_.bands.place(unit);
      ++live[place.band];
      if (place.row >= state_.bands.at(place.band).rows)
        report(name(run.index + i) + ": the unit was never programmed");
    }
    if (WriteQueue::holds(run.unit)) return;
    verify(family, run, [&](std::uint32_t index, const char* what) { report(name(index) + ": " + what); });
  });
  for (std::uint32_t band = 0; band < state_.geometry.blocks_per_die; ++band) {
    if (state_.bands.at(band).live_units != live[band]) {
      report("band " + std::to_string(band) + ": wrong number of live units");
    }
  }
}

}  // namespace kvdrive
