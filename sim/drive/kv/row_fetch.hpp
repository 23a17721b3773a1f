// SPDX-License-Identifier: Apache-2.0
// Consecutive rows of heads to memory: plans all page reads first, then does them at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/head_rows.hpp"

namespace kvdrive {

class RowFetch {
 public:
  // Rows `first` to `first + count` - 1 to `out`. Precondition: they are there.
  void add(const HeadRows& rows, std::uint32_t first, std::uint32_t count, std::byte* out);

  // All rows are at their place afterwards, unless the result is not whole.
  ReadResult run(Ftl& ftl, Ns ready, Sink sink);

  std::uint64_t tail_bytes() const { return tail_bytes_; }

 private:
  // Part of a group: read beside, then copied.
  struct Part {
    ListId list;
    std::uint32_t group;
    std::size_t from, bytes;
    std::byte* out;
  };

  std::vector<GroupRead> whole_;
  std::vector<Part> parts_;
  std::uint64_t tail_bytes_ = 0;
};

}  // namespace kvdrive
