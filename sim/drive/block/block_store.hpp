// SPDX-License-Identifier: Apache-2.0
// Namespace 1 as a block device: logical blocks of one page each, on the same flash as the KV cache.
//
// A block that was never written, or was deallocated, takes no flash and reads as zeros. Provisioning is thin: blocks
// and KV share the drive's capacity, and a write that finds no room is refused. Like the KV cache, writes are durable
// after the next commit. Each region of blocks has a list of groups of its own, so that scattered writes stay cheap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ftl/ftl.hpp"

namespace kvdrive {

class BlockStore {
 public:
  BlockStore(Ftl& ftl, std::uint64_t blocks) : ftl_(ftl), blocks_(blocks) {}

  std::uint64_t size() const { return blocks_; }
  std::uint64_t used() const { return used_; }
  bool holds(std::uint64_t first, std::uint64_t count) const { return first <= blocks_ && count <= blocks_ - first; }

  // Preconditions: `holds` is true for the range, and `data` has whole blocks. A write that throws (DriveFull, or an
  // exception of `commit`) changes nothing.
  void write(std::uint64_t first, std::span<const std::byte> data);
  ReadResult read(std::uint64_t first, std::span<std::byte> data, Ns ready);
  void deallocate(std::uint64_t first, std::uint64_t count);

  void save(RecordWriter& writer, bool everything) const;
  void committed() { dirty_.clear(); }
  void load(RecordReader& reader);
  // To be called after all records, before the Ftl's `finish_loading`.
  void claim_lists();
  void finish_loading();
  // Takes the newest groups of `found` (as Salvage::scan returns them) that verify; `report` gets a sentence for each
  // that cannot be read.
  void salvage(std::span<const FoundGroup> found, const std::function<void(const std::string&)>& report);
  // Compares the map with the groups' spares; `report` gets a sentence for each disagreement.
  void check(const std::function<void(const std::string&)>& report) const;

 private:
  using Region = std::uint32_t;
  static constexpr std::uint32_t kRegionBlocks = 4096;

  // Calls `visit(list, first, count, offset)` for each part of the range whose region has a list. `offset` counts
  // blocks from `first`.
  template <typename Visit>
  void for_each_part(std::uint64_t first, std::uint64_t count, Visit visit) const;

  Ftl& ftl_;
  const std::uint64_t blocks_;
  std::map<Region, ListId> regions_;
  std::set<Region> dirty_;  // regions with a new list since the last commit
  std::uint64_t used_ = 0;
};

}  // namespace kvdrive
