// SPDX-License-Identifier: Apache-2.0
// The translation layer's state in the journal, and the check that the flash agrees with it.
#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "ftl/ftl.hpp"

namespace kvdrive {
namespace {

struct SavedBuffer {
  Unit number;
  Family family;
  std::uint32_t crc;
  Owner owner;
};

}  // namespace

void Ftl::save(RecordWriter& writer, bool everything) {
  map_.save(writer, everything);
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const Slot& slot = queue_[i];
    if (!slot.live || (slot.saved && !everything)) continue;
    writer.put(RecordType::kBuffered);
    writer.put(SavedBuffer{number_of(i), slot.family, slot.crc, slot.owner});
    if (media_.keeps_payload())
      writer.put_all(std::as_const(data_).span().subspan(i * abi::kPageBytes, abi::kPageBytes));
    writer.end_record();
  }
  bands_.save(writer, everything);
  if (everything ? condemning_ : condemned_changed_) {
    writer.put(RecordType::kCondemned);
    writer.put(condemning_ ? 1U : 0U);
    writer.put(static_cast<std::uint32_t>(condemned_.size()));
    for (const std::uint32_t band : condemned_) writer.put(band);
    writer.end_record();
  }
}

void Ftl::committed() {
  map_.committed();
  condemned_changed_ = false;
  for (Slot& slot : queue_) slot.saved = true;
  bands_.committed();
}

void Ftl::load_condemned(RecordReader& reader) {
  condemning_ = reader.get<std::uint32_t>() != 0;
  condemned_.clear();
  for (const std::uint32_t band : reader.get_all<std::uint32_t>(reader.get<std::uint32_t>())) {
    if (band >= geometry_.blocks_per_die) throw std::runtime_error("a record of bands to be erased is damaged");
    condemned_.insert(band);
  }
}

void Ftl::load_buffered(RecordReader& reader) {
  const auto saved = reader.get<SavedBuffer>();
  if (saved.number < kMostUnits) throw std::runtime_error("a buffer record is damaged");
  Loaded loaded{{.family = saved.family, .owner = saved.owner, .crc = saved.crc}, {}};
  if (media_.keeps_payload()) {
    const auto data = reader.take(abi::kPageBytes);
    loaded.data.assign(data.begin(), data.end());
  }
  first_number_ = (saved.number + 1) & kNumberMask;
  loaded_.insert_or_assign(saved.number, std::move(loaded));
}

void Ftl::finish_loading() {
  bands_.finish_loading();
  map_.finish_loading();
  // What waited waits again, under new numbers.
  for (auto& [number, loaded] : loaded_) {
    if (!map_.holds(loaded.slot.family, loaded.slot.owner.index, number)) continue;
    if (std::byte* const to = push(loaded.slot)) std::memcpy(to, loaded.data.data(), abi::kPageBytes);
    map_.move(loaded.slot.family, loaded.slot.owner.index, 1, number, number_of(queue_.size() - 1));
  }
  loaded_.clear();
  map_.for_each_unit([this](Family, const Extent& run) {
    const bool queued = waits(run.unit);
    if (queued ? slot_of(run.unit) + run.count > queue_.size()
               : std::uint64_t{run.unit} + run.count > geometry_.units()) {
      throw std::runtime_error("a session owns a group that the journal does not know");
    }
    if (!queued) bands_.add_live(run.unit, run.count);
    live_ += run.count;
  });
}

std::uint32_t Ftl::groups(ListId list, std::uint32_t count) const {
  std::uint32_t groups = 0;
  map_.extents(list).for_each(0, count, [&groups](const Extent& run) { groups += run.count; });
  return groups;
}

bool Ftl::owner_of(ListId list, std::uint32_t index, Owner& owner) const {
  const Unit unit = map_.unit(list, index);
  if (waits(unit)) {
    owner = queue_[slot_of(unit)].owner;
    return true;
  }
  const Spare spare = media_.spare(unit);
  owner = spare.owner;
  return spare.valid();
}

void Ftl::check(const std::function<void(const std::string&)>& report) {
  std::vector<std::uint32_t> live(geometry_.blocks_per_die);
  std::unordered_map<Unit, std::string> taken;
  map_.for_each_unit([&](Family family, const Extent& run) {
    if (!waits(run.unit)) media_.fetch(run.unit, run.count);
    for (std::uint32_t i = 0; i < run.count; ++i) {
      const Unit unit = run.unit + i;
      const std::string name = "group " + std::to_string(run.index + i) + " of family " + std::to_string(family);
      const auto [other, first] = taken.emplace(unit, name);
      if (!first) report(name + ": " + other->second + " claims the same unit");
      if (waits(unit)) continue;
      const Place place = bands_.place(unit);
      ++live[place.band];
      if (place.row >= bands_.at(place.band).rows) report(name + ": the unit was never programmed");
      const Spare spare = media_.spare(unit);
      if (!spare.valid()) {
        report(name + ": its spare is damaged");
      } else if (spare.family != family || spare.owner.index != run.index + i) {
        report(name + ": its spare describes another group");
      }
      if (media_.keeps_payload() && crc32c({media_.unit(unit), abi::kPageBytes}) != spare.data_crc) {
        report(name + ": its contents are damaged");
      }
    }
  });
  for (std::uint32_t band = 0; band < geometry_.blocks_per_die; ++band) {
    if (bands_.at(band).live_units != live[band]) {
      report("band " + std::to_string(band) + ": wrong number of live units");
    }
  }
}

}  // namespace kvdrive
