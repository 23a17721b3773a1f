// SPDX-License-Identifier: Apache-2.0
// The translation layer's state in the journal, and the check that the flash agrees with it.
#include <algorithm>
#include <string>

#include "ftl/ftl.hpp"

namespace kvdrive {
namespace {

struct SavedMap {
  std::uint32_t group, unit, crc;
};

struct SavedBuffer {
  std::uint32_t group, die, crc;
  Owner owner;
};

constexpr std::size_t kMapsPerRecord = 1 << 16;

}  // namespace

void Ftl::save(RecordWriter& writer, bool everything) {
  std::vector<SavedMap> maps;
  const auto flush = [&] {
    if (maps.empty()) return;
    writer.put(RecordType::kMap);
    writer.put(static_cast<std::uint32_t>(maps.size()));
    writer.put_all(std::span<const SavedMap>(maps));
    writer.end_record();
    maps.clear();
  };
  const auto add = [&](GroupId group) {
    maps.push_back({group, entries_[group].unit, entries_[group].crc});
    if (maps.size() == kMapsPerRecord) flush();
  };
  if (everything) {
    for (GroupId group = 0; group < entries_.size(); ++group) {
      if (entries_[group].references > 0 && entries_[group].unit != kQueued) add(group);
    }
  } else {
    for (const GroupId group : dirty_) add(group);
  }
  flush();
  for (std::uint32_t die = 0; die < geometry_.dies(); ++die) {
    const Queue& queue = queues_[die];
    for (std::size_t i = 0; i < queue.slots.size(); ++i) {
      const Slot& slot = queue.slots[i];
      if (slot.saved && !everything) continue;
      writer.put(RecordType::kBuffered);
      writer.put(SavedBuffer{slot.group, die, entries_[slot.group].crc, slot.owner});
      writer.put_all(queue.data.span().subspan(i * abi::kPageBytes, abi::kPageBytes));
      writer.end_record();
    }
  }
  blocks_.save(writer, everything);
}

void Ftl::committed() {
  dirty_.clear();
  for (Queue& queue : queues_) {
    for (Slot& slot : queue.slots) slot.saved = true;
  }
  blocks_.committed();
}

void Ftl::load_map(RecordReader& reader) {
  for (const SavedMap& saved : reader.get_all<SavedMap>(reader.get<std::uint32_t>())) {
    if (saved.unit >= geometry_.units() || saved.group >= geometry_.units()) {
      throw std::runtime_error("a map record is damaged");
    }
    if (saved.group >= entries_.size()) entries_.resize(saved.group + 1);
    if (queued_.contains(saved.group)) drop_from_queue(saved.group);
    entries_[saved.group] = {saved.unit, saved.crc, 0};
  }
}

void Ftl::load_buffered(RecordReader& reader) {
  const auto saved = reader.get<SavedBuffer>();
  const auto data = reader.take(abi::kPageBytes);
  if (saved.die >= geometry_.dies() || saved.group >= geometry_.units()) {
    throw std::runtime_error("a buffer record is damaged");
  }
  if (saved.group >= entries_.size()) entries_.resize(saved.group + 1);
  if (queued_.contains(saved.group)) drop_from_queue(saved.group);
  entries_[saved.group] = {kQueued, saved.crc, 0};
  push(saved.die, {saved.group, saved.owner, true}, data);
}

void Ftl::finish_loading() {
  blocks_.finish_loading();
  for (GroupId group = 0; group < entries_.size(); ++group) {
    Entry& entry = entries_[group];
    if (entry.references == 0) {
      if (queued_.contains(group)) drop_from_queue(group);
      entry.unit = kQueued;
      unused_.push_back(group);
      continue;
    }
    if (entry.unit == kQueued && !queued_.contains(group)) {
      throw std::runtime_error("a session owns a group that the journal does not know");
    }
    if (entry.unit != kQueued) blocks_.add_live(entry.unit);
    ++live_;
  }
}

bool Ftl::owner_of(GroupId group, Owner& owner) {
  const Entry& entry = entries_.at(group);
  if (entry.unit == kQueued) {
    const Location at = queued_.at(group);
    owner = queues_[at.die].slots[at.slot].owner;
    return true;
  }
  const Spare spare = media_.spare(entry.unit);
  owner = spare.owner;
  return spare.valid();
}

void Ftl::check(const std::function<void(const std::string&)>& report) {
  std::vector<std::uint32_t> live(std::size_t{geometry_.dies()} * geometry_.blocks_per_die);
  std::unordered_map<Unit, GroupId> taken;
  AlignedBuffer data(abi::kPageBytes);
  for (GroupId group = 0; group < entries_.size(); ++group) {
    const Entry& entry = entries_[group];
    if (entry.references == 0 || entry.unit == kQueued) continue;
    const std::string name = "group " + std::to_string(group) + " in unit " + std::to_string(entry.unit);
    const Place place = place_of(geometry_, entry.unit);
    ++live[std::size_t{place.die} * geometry_.blocks_per_die + place.block];
    const auto [other, first] = taken.emplace(entry.unit, group);
    if (!first) report(name + ": group " + std::to_string(other->second) + " claims the same unit");
    if (place.program >= blocks_.at(place.die, place.block).programs) report(name + ": the unit was never programmed");
    const Spare spare = media_.spare(entry.unit);
    if (!spare.valid()) {
      report(name + ": its spare is damaged");
    } else if (spare.group != group || spare.data_crc != entry.crc) {
      report(name + ": its spare describes another group");
    }
    const UnitRead read{entry.unit, data.data()};
    media_.read(std::span(&read, 1));
    if (crc32c(data.span()) != entry.crc) report(name + ": its contents are damaged");
  }
  for (std::uint32_t die = 0; die < geometry_.dies(); ++die) {
    for (std::uint32_t block = 0; block < geometry_.blocks_per_die; ++block) {
      if (blocks_.at(die, block).live_units != live[std::size_t{die} * geometry_.blocks_per_die + block]) {
        report("block " + std::to_string(block) + " of die " + std::to_string(die) + ": wrong number of live units");
      }
    }
  }
}

}  // namespace kvdrive
