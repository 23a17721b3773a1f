// SPDX-License-Identifier: Apache-2.0
// Rows in 8 and 4 bits as kernels read them (docs/jobs.md, Codes in 8 and 4 bits).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/abi.hpp"
#include "formats.hpp"

namespace kvdrive {

// Bits of a code.
constexpr std::uint32_t code_bits(RowFormat format) { return format == nvme::kInt8 ? 8 : 4; }

// Bytes that the numbers of a part share.
constexpr std::uint32_t part_step_bytes(RowFormat format) { return format == nvme::kInt8 ? 1 : 2; }

// True if a kernel is built for jobs over codes of this shape (hls/attention_codes).
constexpr bool has_code_kernel(RowFormat format, unsigned group, unsigned head_dim) {
  const bool built = (format == nvme::kInt8 || format == nvme::kInt4) && (group == 1 || group == 4);
  return built && (head_dim % (abi::kBeatBits / code_bits(format)) == 0 || head_dim == 64);
}

// Writes the codes and the step bytes of whole INT8 or INT4 rows of a shape that a kernel is built for.
void order_codes(RowFormat format, std::uint32_t head_dim, std::span<const std::byte> rows, std::byte* codes,
                 std::byte* steps);

}  // namespace kvdrive
