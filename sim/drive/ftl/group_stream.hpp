// SPDX-License-Identifier: Apache-2.0
// Groups in a given order, read around the page cache a few pieces ahead of their user.
//
// Groups that lie side by side arrive in one read; a short gap is read along, because a request costs more than the
// pages between.
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
  static constexpr std::uint32_t kGap = 4;  // groups (docs/runtime.md has the measurement)

  struct Group {
    ListId list = 0;
    std::uint32_t index = 0;
  };

  // Consecutive groups of one list.
  struct Piece {
    std::size_t first = 0;  // number of the first one, of those asked for
    std::span<const std::byte* const> pages;
    bool whole = true;  // false: the disk could not read some of them, which hold anything
  };

  // `depth` pieces are under way or in use at most. The groups are there, and stay until the stream ends.
  GroupStream(ReadPath& path, DirectReads& reads, std::vector<Group> groups, std::size_t depth, Sink sink)
      : path_(path), reads_(reads), groups_(std::move(groups)), depth_(depth), sink_(sink) {}
  GroupStream(const GroupStream&) = delete;
  GroupStream& operator=(const GroupStream&) = delete;
  ~GroupStream();

  // Starts reading, as far ahead as `depth` allows; `next` does so as well.
  void begin();

  // Waits for the next piece and lets the one before it go. Precondition: not all groups have come.
  Piece next();

 private:
  struct Slot {
    AlignedBuffer buffer;
    DirectReads::Batch batch;
    std::size_t first = 0;
    std::vector<const std::byte*> pages;
    bool struck = false;
  };

  void start(Slot& slot);
  void release_first();

  ReadPath& path_;
  DirectReads& reads_;
  const std::vector<Group> groups_;
  const std::size_t depth_;
  const Sink sink_;
  std::size_t next_ = 0;  // group to be read
  bool in_use_ = false;   // the first slot
  std::deque<std::unique_ptr<Slot>> slots_;
};

}  // namespace kvdrive
