// SPDX-License-Identifier: Apache-2.0
// Reads groups in a given order around the page cache, some pieces ahead of their use.
//
// Groups in adjacent units arrive in one read, also if they are of several lists: the heads of a layer that were
// appended together. A short gap between groups of a list is read too, because another request costs more than its
// pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ftl/read_path.hpp"
#include "storage/direct_reads.hpp"

namespace kvdrive {

class GroupStream {
 public:
  static constexpr std::uint32_t kPieceGroups = DirectReads::kBufferBytes / abi::kPageBytes;
  static constexpr std::uint32_t kGap = 4;  // groups; docs/design/runtime.md has the measurement

  struct Group {
    ListId list = 0;
    std::uint32_t index = 0;

    bool operator==(const Group&) const = default;
  };

  // Consecutive groups of one list.
  struct Piece {
    std::size_t first = 0;  // position of its first group in the given order
    std::span<const std::byte* const> pages;
    bool whole = true;   // false: some pages could not be read; their contents are undefined
    bool stays = false;  // true: until the stream ends
  };

  // At most `depth` pieces are in use or being read. `keeps`: as soon as this is enough for all that are left, pieces
  // stay until the stream ends. Precondition: the lists hold the groups until then.
  GroupStream(ReadPath& path, DirectReads& reads, std::vector<Group> groups, std::size_t depth, Sink sink,
              bool keeps = false)
      : path_(path), reads_(reads), groups_(std::move(groups)), depth_(depth), sink_(sink), keeps_(keeps) {}
  GroupStream(const GroupStream&) = delete;
  GroupStream& operator=(const GroupStream&) = delete;
  ~GroupStream();

  // Starts to read as far ahead as `depth` allows; `next` does so too.
  void begin();
  // Starts to read at most `most` pieces from the disk. Groups in drive memory, which may move between commands, and
  // those behind them wait for `next`. Returns the number of pieces.
  std::size_t begin_early(std::size_t most);
  // Makes `next` begin with the first piece again. False, without effect, if a piece is gone, was in drive memory or
  // could not be read.
  bool rewind();

  const std::vector<Group>& groups() const { return groups_; }

  // Releases the previous piece, unless it stays, and waits for the next one. Precondition: groups are left.
  Piece next();

 private:
  struct Slot {
    AlignedBuffer buffer;
    DirectReads::Batch batch;
    std::size_t first = 0;
    std::vector<const std::byte*> pages;
    bool struck = false;
    bool stays = false;
    bool from_memory = false;  // at least one page
  };
  // Units that are read into a slot's buffer.
  struct Range {
    Unit first = 0;
    std::uint32_t count = 0;
    std::byte* to = nullptr;
    Slot* slot = nullptr;
  };

  bool disk_is_next() const {
    return path_.in_memory(path_.unit(groups_[next_].list, groups_[next_].index)) == nullptr;
  }
  void start(Slot& slot, bool from_disk_only);
  void add_slot(bool from_disk_only);
  void start_reads();
  void release_first();

  ReadPath& path_;
  DirectReads& reads_;
  const std::vector<Group> groups_;
  const std::size_t depth_;
  const Sink sink_;
  const bool keeps_;
  std::size_t next_ = 0;   // position of the next group to read
  std::size_t taken_ = 0;  // slots that the user holds; more than one only if they stay
  std::deque<std::unique_ptr<Slot>> slots_;
  std::vector<Range> ranges_;  // whose reads start next
};

}  // namespace kvdrive
