// SPDX-License-Identifier: Apache-2.0
// CRC-32C by carry-less multiplication of 512-bit registers: several times faster than the processor's CRC-32C
// instruction.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvdrive {

inline constexpr std::uint32_t kCrc32cPolynomial = 0x82f63b78;  // bits reversed
inline constexpr std::size_t kFoldBytes = 256;

// True if this processor has the instructions that fold_crc32c needs.
bool can_fold_crc32c();

// Returns the CRC register `crc` after `blocks` (at least one) times kFoldBytes of data. Precondition:
// can_fold_crc32c().
std::uint32_t fold_crc32c(std::uint32_t crc, const std::byte* data, std::size_t blocks);

}  // namespace kvdrive
