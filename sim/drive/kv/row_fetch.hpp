// SPDX-License-Identifier: Apache-2.0
// Copies consecutive rows of heads to memory. It collects all page reads first and then does them together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/head_rows.hpp"

namespace kvdrive {

class RowFetch {
 public:
  // Adds the rows [first, first + count), which are copied to `out`. Precondition: the head has these rows.
  void add(const HeadRows& rows, std::uint32_t first, std::uint32_t count, std::byte* out);

  // Performs the reads. Afterwards all rows are in place, unless the result is not whole.
  ReadResult run(Ftl& ftl, Ns ready, Sink sink);

  std::uint64_t staged_bytes() const { return staged_bytes_; }

 private:
  // A part of a group: its page is read into a buffer, then the rows are copied.
  struct Part {
    ListId list;
    std::uint32_t group;
    std::size_t from, bytes;
    std::byte* out;
  };

  std::vector<GroupRead> whole_;
  std::vector<Part> parts_;
  std::uint64_t staged_bytes_ = 0;
};

}  // namespace kvdrive
