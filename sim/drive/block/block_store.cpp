// SPDX-License-Identifier: Apache-2.0
#include "block/block_store.hpp"

#include <algorithm>
#include <stdexcept>

namespace kvdrive {
namespace {

constexpr GroupId kUnmapped = UINT32_MAX;
constexpr std::size_t kBlocksPerRecord = 1 << 16;

struct SavedBlock {
  std::uint32_t block, group;
};

Owner owner_of(std::uint32_t block) {
  Owner owner;
  owner.kind = GroupKind::kBlock;
  owner.index = block;
  return owner;
}

}  // namespace

void BlockStore::write(std::uint64_t first, std::span<const std::byte> data) {
  const std::size_t count = data.size() / abi::kPageBytes;
  std::vector<GroupId> groups;
  try {
    for (std::size_t i = 0; i < count; ++i) {
      const auto block = static_cast<Block>(first + i);
      groups.push_back(ftl_.put(owner_of(block), block, data.subspan(i * abi::kPageBytes, abi::kPageBytes)));
    }
  } catch (...) {
    for (const GroupId group : groups) ftl_.release(group);
    throw;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto block = static_cast<Block>(first + i);
    unmap(block);
    map_[block] = groups[i];
  }
}

Ftl::ReadResult BlockStore::read(std::uint64_t first, std::span<std::byte> data, Ns ready) {
  std::ranges::fill(data, std::byte{0});
  std::vector<GroupRead> reads;
  const auto last = map_.lower_bound(static_cast<Block>(first + data.size() / abi::kPageBytes));
  for (auto entry = map_.lower_bound(static_cast<Block>(first)); entry != last; ++entry) {
    reads.push_back({entry->second, data.data() + (entry->first - first) * abi::kPageBytes});
  }
  if (reads.empty()) return {.whole = true, .done = ready};
  return ftl_.read(reads, ready, Sink::kHost);
}

void BlockStore::deallocate(std::uint64_t first, std::uint64_t count) {
  std::vector<Block> mapped;
  const std::uint64_t last = first + count;
  for (auto entry = map_.lower_bound(static_cast<Block>(first)); entry != map_.end() && entry->first < last; ++entry) {
    mapped.push_back(entry->first);
  }
  for (const Block block : mapped) unmap(block);
}

void BlockStore::unmap(Block block) {
  dirty_.insert(block);
  const auto entry = map_.find(block);
  if (entry == map_.end()) return;
  ftl_.release(entry->second);
  map_.erase(entry);
}

void BlockStore::save(RecordWriter& writer, bool everything) const {
  std::vector<SavedBlock> saved;
  const auto flush = [&] {
    if (saved.empty()) return;
    writer.put(RecordType::kBlocks);
    writer.put(static_cast<std::uint32_t>(saved.size()));
    writer.put_all(std::span<const SavedBlock>(saved));
    writer.end_record();
    saved.clear();
  };
  const auto add = [&](Block block, GroupId group) {
    saved.push_back({block, group});
    if (saved.size() == kBlocksPerRecord) flush();
  };
  if (everything) {
    for (const auto& [block, group] : map_) add(block, group);
  } else {
    for (const Block block : dirty_) {
      const auto entry = map_.find(block);
      add(block, entry == map_.end() ? kUnmapped : entry->second);
    }
  }
  flush();
}

void BlockStore::load(RecordReader& reader) {
  for (const SavedBlock& saved : reader.get_all<SavedBlock>(reader.get<std::uint32_t>())) {
    if (saved.block >= blocks_) throw std::runtime_error("a record of logical blocks is damaged");
    if (saved.group == kUnmapped) {
      map_.erase(saved.block);
    } else {
      map_[saved.block] = saved.group;
    }
  }
}

void BlockStore::finish_loading() {
  for (const auto& [block, group] : map_) {
    if (group >= ftl_.groups()) throw std::runtime_error("a logical block names a group that does not exist");
    ftl_.retain(group);
  }
}

void BlockStore::check(const std::function<void(const std::string&)>& report) const {
  for (const auto& [block, group] : map_) {
    Owner owner;
    if (!ftl_.owner_of(group, owner) || owner != owner_of(block)) {
      report("block " + std::to_string(block) + ": its page was written for something else");
    }
  }
}

}  // namespace kvdrive
