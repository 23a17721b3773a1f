// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/page_filter.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "engine/fast/job.hpp"

namespace kvdrive::fast {
namespace {

std::uint32_t check(std::size_t bytes, std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t page_bytes) {
  const auto* const end = std::end(abi::kFilterPageBytes);
  const bool bad_row =
      row_bytes % abi::kRowBytesStep != 0 || row_bytes < abi::kMinRowBytes || row_bytes > abi::kMaxRowBytes;
  const bool bad_page = std::find(std::begin(abi::kFilterPageBytes), end, page_bytes) == end;
  if (bad_row || bad_page) return bit_if(bad_row, abi::kBadRowBytes) | bit_if(bad_page, abi::kBadPageBytes);
  const std::size_t capacity = bytes / page_bytes * (page_bytes / row_bytes);
  return bit_if(bytes % page_bytes != 0 || rows < 1 || rows > capacity, abi::kBadLength);
}

}  // namespace

FilterResult page_filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap, std::uint32_t rows,
                         std::uint32_t row_bytes, std::uint32_t page_bytes) {
  FilterResult result;
  result.status = check(pages.size(), rows, row_bytes, page_bytes);
  if (result.status != 0) return result;
  for (std::size_t i = 0; i < rows; ++i) result.rows_kept += bit(bitmap.data(), i) ? 1 : 0;
  result.rows_seen = rows;
  result.rows.resize(std::size_t{result.rows_kept} * row_bytes);
  result.page_needed.resize(pages.size() / page_bytes);
  const std::uint32_t per_page = page_bytes / row_bytes;
  std::uint8_t* out = result.rows.data();
  for (std::size_t page = 0, row = 0; row < rows; ++page) {
    const std::uint8_t* content = pages.data() + page * page_bytes;
    for (std::uint32_t i = 0; i < per_page && row < rows; ++i, ++row, content += row_bytes) {
      if (!bit(bitmap.data(), row)) continue;
      std::memcpy(out, content, row_bytes);
      out += row_bytes;
      result.page_needed[page] = 1;
    }
  }
  return result;
}

}  // namespace kvdrive::fast
