// SPDX-License-Identifier: Apache-2.0
#include "kv/row_fetch.hpp"

#include <algorithm>
#include <cstring>

namespace kvdrive {

void RowFetch::add(const HeadRows& rows, std::uint32_t first, std::uint32_t count, std::byte* out) {
  const std::size_t row_bytes = rows.row_bytes();
  const std::uint32_t per_group = rows.tokens_per_group();
  const std::uint32_t stored = std::min(first + count, rows.tokens_in_groups());
  std::uint32_t token = first;
  while (token < stored) {
    const std::uint32_t in_group = token % per_group;
    const std::uint32_t taken = std::min(per_group - in_group, stored - token);
    const std::uint32_t group = token / per_group;
    if (taken * row_bytes == abi::kPageBytes) {
      whole_.push_back({rows.list(), group, out});
    } else {
      parts_.push_back({rows.list(), group, in_group * row_bytes, taken * row_bytes, out});
    }
    out += taken * row_bytes;
    token += taken;
  }
  if (token < first + count) {
    const std::size_t bytes = (first + count - token) * row_bytes;
    std::memcpy(out, rows.staged().data() + (token - rows.tokens_in_groups()) * row_bytes, bytes);
    staged_bytes_ += bytes;
  }
}

ReadResult RowFetch::run(Ftl& ftl, Ns ready, Sink sink) {
  std::vector<std::byte> beside(parts_.size() * abi::kPageBytes);
  std::vector<GroupRead> reads = whole_;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    reads.push_back({parts_[i].list, parts_[i].group, beside.data() + i * abi::kPageBytes,
                     static_cast<std::uint32_t>(parts_[i].bytes)});
  }
  const auto result = ftl.read(reads, ready, sink);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    std::memcpy(parts_[i].out, beside.data() + i * abi::kPageBytes + parts_[i].from, parts_[i].bytes);
  }
  return result;
}

}  // namespace kvdrive
