// SPDX-License-Identifier: Apache-2.0
// Stored rows of K and V in 8 and 4 bits, as docs/arithmetic.md defines them ("Numbers at rest").
//
// A row is one token's numbers of one head: codes, then, in the integer formats, the bytes of each part of kFormatPart
// numbers. Every code stands for a binary16 number. Rows of kBinary16 are plain numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "commands/wire.hpp"
#include "common/abi.hpp"

namespace kvdrive {

using RowFormat = nvme::RowFormat;

// True for codes that a part's step scales.
constexpr bool is_integer(RowFormat format) { return format == nvme::kInt8 || format == nvme::kInt4; }

constexpr std::uint32_t format_parts(std::uint32_t head_dim) {
  return (head_dim + abi::kFormatPart - 1) / abi::kFormatPart;
}

// Bytes of a row of `head_dim` numbers.
constexpr std::uint32_t row_bytes_of(RowFormat format, std::uint32_t head_dim) {
  if (format == nvme::kInt8) return head_dim + format_parts(head_dim);
  if (format == nvme::kInt4) return head_dim / 2 + 2 * format_parts(head_dim);
  return format == nvme::kFp8 ? head_dim : head_dim * 2;
}

// The head dimension whose rows have `row_bytes` bytes. 0 if there is none, or the format is unknown.
std::uint32_t head_dim_of(RowFormat format, std::uint32_t row_bytes);

// True if every code of whole rows stands for a finite number. For rows at any address.
bool valid_rows(RowFormat format, std::uint32_t head_dim, std::span<const std::byte> rows);

// Writes the binary16 numbers of whole rows to `out`.
void decode_rows(RowFormat format, std::uint32_t head_dim, std::span<const std::byte> rows, std::uint16_t* out);

// Rounds `rows` rows of finite binary16 numbers and writes their bytes to `out`. Decoded rows keep their values.
void encode_rows(RowFormat format, std::uint32_t head_dim, const std::uint16_t* halves, std::size_t rows,
                 std::byte* out);

}  // namespace kvdrive
