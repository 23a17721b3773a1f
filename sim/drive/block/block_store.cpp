// SPDX-License-Identifier: Apache-2.0
#include "block/block_store.hpp"

#include <algorithm>
#include <stdexcept>

namespace kvdrive {
namespace {

struct SavedRegion {
  std::uint32_t region;
  ListId list;
};

Owner owner_of(std::uint32_t region, std::uint32_t index) {
  Owner owner;
  owner.session = region;
  owner.kind = GroupKind::kBlock;
  owner.index = index;
  return owner;
}

}  // namespace

template <typename Visit>
void BlockStore::for_each_part(std::uint64_t first, std::uint64_t count, Visit visit) const {
  const std::uint64_t end = first + count;
  for (auto entry = regions_.lower_bound(static_cast<Region>(first / kRegionBlocks)); entry != regions_.end();
       ++entry) {
    const std::uint64_t start = std::uint64_t{entry->first} * kRegionBlocks;
    if (start >= end) return;
    const std::uint64_t from = std::max(first, start), to = std::min(end, start + kRegionBlocks);
    visit(entry->second, static_cast<std::uint32_t>(from - start), static_cast<std::uint32_t>(to - from), from - first);
  }
}

// Writes go to copies of the lists. The copies replace the lists when all blocks are stored, so a failed write changes
// nothing.
void BlockStore::write(std::uint64_t first, std::span<const std::byte> data) {
  const std::size_t count = data.size() / abi::kPageBytes;
  std::map<Region, ListId> written;
  try {
    for (std::size_t i = 0; i < count; ++i) {
      const auto region = static_cast<Region>((first + i) / kRegionBlocks);
      const auto index = static_cast<std::uint32_t>((first + i) % kRegionBlocks);
      auto copy = written.find(region);
      if (copy == written.end()) {
        const auto old = regions_.find(region);
        const ListId list = old == regions_.end() ? ftl_.create_list() : ftl_.fork_list(old->second, kRegionBlocks);
        copy = written.emplace(region, list).first;
      }
      ftl_.put(copy->second, owner_of(region, index), data.subspan(i * abi::kPageBytes, abi::kPageBytes), {});
    }
  } catch (...) {
    for (const auto& [region, list] : written) ftl_.drop_list(list);
    throw;
  }
  for (const auto& [region, list] : written) {
    used_ += ftl_.groups(list, kRegionBlocks);
    if (const auto old = regions_.find(region); old != regions_.end()) {
      used_ -= ftl_.groups(old->second, kRegionBlocks);
      ftl_.drop_list(old->second);
    }
    regions_[region] = list;
    dirty_.insert(region);
  }
}

ReadResult BlockStore::read(std::uint64_t first, std::span<std::byte> data, Ns ready) {
  std::ranges::fill(data, std::byte{0});
  std::vector<GroupRead> reads;
  for_each_part(first, data.size() / abi::kPageBytes,
                [&](ListId list, std::uint32_t from, std::uint32_t count, std::uint64_t offset) {
                  for (std::uint32_t i = 0; i < count; ++i) {
                    if (!ftl_.holds(list, from + i)) continue;
                    reads.push_back({list, from + i, data.data() + (offset + i) * abi::kPageBytes});
                  }
                });
  if (reads.empty()) return {.whole = true, .done = ready};
  return ftl_.read(reads, ready, Sink::kHost);
}

void BlockStore::deallocate(std::uint64_t first, std::uint64_t count) {
  for_each_part(first, count, [&](ListId list, std::uint32_t from, std::uint32_t blocks, std::uint64_t) {
    for (std::uint32_t i = 0; i < blocks; ++i) {
      if (!ftl_.holds(list, from + i)) continue;
      ftl_.remove(list, from + i);
      --used_;
    }
  });
}

void BlockStore::save(RecordWriter& writer, bool everything) const {
  std::vector<SavedRegion> saved;
  for (const auto& [region, list] : regions_) {
    if (everything || dirty_.contains(region)) saved.push_back({region, list});
  }
  if (saved.empty()) return;
  writer.put(RecordType::kBlocks);
  writer.put(static_cast<std::uint32_t>(saved.size()));
  writer.put_all(std::span<const SavedRegion>(saved));
  writer.end_record();
}

void BlockStore::load(RecordReader& reader) {
  for (const SavedRegion& saved : reader.get_all<SavedRegion>(reader.get<std::uint32_t>())) {
    if (std::uint64_t{saved.region} * kRegionBlocks >= blocks_) {
      throw std::runtime_error("a record of logical blocks is damaged");
    }
    regions_[saved.region] = saved.list;
  }
}

void BlockStore::claim_lists() {
  for (const auto& [region, list] : regions_) ftl_.claim(list);
}

void BlockStore::finish_loading() {
  for (const auto& [region, list] : regions_) used_ += ftl_.groups(list, kRegionBlocks);
}

void BlockStore::salvage(std::span<const FoundGroup> found, const std::function<void(const std::string&)>& report) {
  std::uint64_t taken = 0;
  const FoundGroup* last = nullptr;
  for (const FoundGroup& group : found) {
    const Owner& owner = group.owner;
    const Region region = owner.session;
    const bool place = owner.kind == GroupKind::kBlock && owner.index < kRegionBlocks &&
                       std::uint64_t{region} * kRegionBlocks + owner.index < blocks_;
    if (!place || (last != nullptr && last->owner == owner) || !ftl_.salvage().verified(group)) continue;
    last = &group;  // the newest group that verifies
    auto list = regions_.find(region);
    if (list == regions_.end()) list = regions_.emplace(region, ftl_.salvage().adopt_list(group.family)).first;
    const bool newer = !ftl_.holds(list->second, owner.index) || !ftl_.salvage().verified(list->second, owner.index) ||
                       ftl_.salvage().order(list->second, owner.index) < group.order;
    if (ftl_.family(list->second) != group.family || !newer) continue;
    ftl_.salvage().adopt(list->second, owner.index, group.unit);
    dirty_.insert(region);
    ++taken;
  }
  if (taken > 0) report(std::to_string(taken) + " logical blocks came back from their spares");
  used_ = 0;
  for (const auto& [region, list] : regions_) {
    used_ += ftl_.groups(list, kRegionBlocks);
    for (std::uint32_t index = 0; index < kRegionBlocks; ++index) {
      if (!ftl_.holds(list, index) || ftl_.salvage().verified(list, index)) continue;
      report("block " + std::to_string(std::uint64_t{region} * kRegionBlocks + index) +
             ": its page or its spare is damaged; reading it fails until it is written again");
    }
  }
}

void BlockStore::check(const std::function<void(const std::string&)>& report) const {
  for (const auto& [region, list] : regions_) {
    for (std::uint32_t index = 0; index < kRegionBlocks; ++index) {
      Owner owner;
      if (ftl_.holds(list, index) && ftl_.owner_of(list, index, owner) && owner != owner_of(region, index)) {
        report("block " + std::to_string(std::uint64_t{region} * kRegionBlocks + index) +
               ": its page was written for something else");
      }
    }
  }
}

}  // namespace kvdrive
