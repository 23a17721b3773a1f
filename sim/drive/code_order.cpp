// SPDX-License-Identifier: Apache-2.0
#include "code_order.hpp"

#include <algorithm>
#include <cstring>

#include "common/abi.hpp"

namespace kvdrive {

void order_codes(RowFormat format, std::uint32_t head_dim, std::span<const std::byte> rows, std::byte* codes,
                 std::byte* steps) {
  const std::uint32_t code_bytes = abi::kFormatPart * code_bits(format) / 8, step_bytes = part_step_bytes(format);
  const std::uint32_t parts = format_parts(head_dim);
  const std::uint32_t side_by_side = std::min(parts, abi::kBeatBytes / code_bytes);
  const std::uint32_t beats = parts / side_by_side, row_codes = parts * code_bytes;
  const std::size_t row_bytes = row_bytes_of(format, head_dim);
  for (std::size_t at = 0; at < rows.size(); at += row_bytes) {
    const std::byte* const row = rows.data() + at;
    for (std::uint32_t i = 0; i < parts; ++i, codes += code_bytes, steps += step_bytes) {
      const std::uint32_t part = i / side_by_side + i % side_by_side * beats;
      std::memcpy(codes, row + part * code_bytes, code_bytes);
      std::memcpy(steps, row + row_codes + part * step_bytes, step_bytes);
    }
  }
}

}  // namespace kvdrive
