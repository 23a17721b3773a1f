// SPDX-License-Identifier: Apache-2.0
#include "ftl/group_stream.hpp"

#include <algorithm>
#include <utility>

namespace kvdrive {

GroupStream::~GroupStream() {
  while (!slots_.empty()) release_first();
}

GroupStream::Piece GroupStream::next() {
  if (taken_ == 1 && !slots_.front()->stays) release_first();
  begin();
  Slot& slot = *slots_[taken_++];
  reads_.wait(slot.batch);
  slot.stays = keeps_ && next_ == groups_.size();
  return {slot.first, slot.pages, slot.batch.error == 0 && !slot.struck, slot.stays};
}

void GroupStream::begin() {
  while (slots_.size() < depth_ && next_ < groups_.size()) add_slot(false);
  start_reads();
}

std::size_t GroupStream::begin_early(std::size_t most) {
  while (slots_.size() < std::min(most, depth_) && next_ < groups_.size() && disk_is_next()) add_slot(true);
  start_reads();
  return slots_.size();
}

bool GroupStream::rewind() {
  if (next_ < groups_.size() || slots_.empty() || slots_.front()->first != 0) return false;
  for (const auto& slot : slots_) {
    reads_.wait(slot->batch);
    if (slot->from_memory || slot->struck || slot->batch.error != 0) return false;
  }
  taken_ = 0;
  return true;
}

void GroupStream::add_slot(bool from_disk_only) {
  slots_.push_back(std::make_unique<Slot>());
  slots_.back()->buffer = reads_.take();
  start(*slots_.back(), from_disk_only);
}

// Adjacent ranges become one read of at most a buffer's size.
void GroupStream::start_reads() {
  std::ranges::sort(ranges_, {}, &Range::first);
  std::vector<DirectReads::Part> parts;
  for (std::size_t i = 0; i < ranges_.size();) {
    const Unit first = ranges_[i].first;
    Unit end = first;
    parts.clear();
    for (; i < ranges_.size() && ranges_[i].first == end && end - first + ranges_[i].count <= kPieceGroups; ++i) {
      parts.push_back({{ranges_[i].to, std::size_t{ranges_[i].count} * abi::kPageBytes}, &ranges_[i].slot->batch});
      end += ranges_[i].count;
    }
    path_.start_read(reads_, first, end - first, parts);
  }
  ranges_.clear();
  reads_.submit();
}

// Takes as many groups of one list as fit into the slot's buffer.
void GroupStream::start(Slot& slot, bool from_disk_only) {
  slot.first = next_;
  Unit first = 0, end = 0;         // units of the read that is being assembled
  std::uint32_t at = 0, used = 0;  // pages of the buffer: first page of this read, number of pages used
  const auto read = [&] {
    if (end == first) return;
    ranges_.push_back({first, end - first, slot.buffer.data() + std::size_t{at} * abi::kPageBytes, &slot});
  };
  const ListId list = groups_[next_].list;
  for (; next_ < groups_.size() && groups_[next_].list == list && slot.pages.size() < kPieceGroups; ++next_) {
    const Unit unit = path_.unit(list, groups_[next_].index);
    const std::byte* page = path_.in_memory(unit);
    if (page != nullptr && from_disk_only) break;
    slot.from_memory |= page != nullptr;
    if (page == nullptr) {
      const bool grows = end > first && unit >= end && unit - end <= kGap;
      const std::uint32_t needed = grows ? unit - end + 1 : 1;
      if (used + needed > kPieceGroups) break;
      if (!grows) {
        read();
        first = unit;
        at = used;
      }
      end = unit + 1;
      used += needed;
      page = slot.buffer.data() + std::size_t{used - 1} * abi::kPageBytes;
    }
    slot.struck |= path_.count_read(unit, sink_);
    slot.pages.push_back(page);
  }
  read();
}

void GroupStream::release_first() {
  Slot& slot = *slots_.front();
  reads_.wait(slot.batch);
  reads_.give(std::move(slot.buffer));
  slots_.pop_front();
  taken_ = 0;
}

}  // namespace kvdrive
