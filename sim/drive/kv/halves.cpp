// SPDX-License-Identifier: Apache-2.0
#include "kv/halves.hpp"

#include <array>
#include <cstring>

#include "common/abi.hpp"
#include "engine/fixed.hpp"

namespace kvdrive {
namespace {

constexpr std::uint16_t kExponent = 0x7c00;
constexpr std::uint16_t kFraction = 0x03ff;

}  // namespace

// Checks four numbers at once. Adding one to the lowest bit of an exponent carries into the sign bit only if all
// exponent bits are set, which means Inf or NaN.
bool all_finite(std::span<const std::byte> rows) {
  constexpr std::uint64_t ones = 0x0001'0001'0001'0001, exponents = ones * kExponent;
  std::uint64_t carries = 0;
  std::size_t at = 0;
  for (; at + sizeof carries <= rows.size(); at += sizeof carries) {
    std::uint64_t four = 0;
    std::memcpy(&four, rows.data() + at, sizeof four);
    carries |= (four & exponents) + ones * (kFraction + 1);
  }
  bool finite = (carries & ones * 0x8000) == 0;
  for (std::size_t i = at / 2; i < rows.size() / 2; ++i) finite &= (half_at(rows, i) & kExponent) != kExponent;
  return finite;
}

void add_rows(RowFormat format, std::span<const std::byte> rows, std::span<std::int64_t> sums, int sign) {
  const auto head_dim = static_cast<std::uint32_t>(sums.size());
  const std::size_t row_bytes = row_bytes_of(format, head_dim);
  std::array<std::uint16_t, abi::kMaxHeadDim> halves{};
  for (std::size_t at = 0; at < rows.size(); at += row_bytes) {
    decode_rows(format, head_dim, rows.subspan(at, row_bytes), halves.data());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += sign * fixed(halves[i]);
  }
}

}  // namespace kvdrive
