// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, reflected polynomial 82f63b78h, initial and final value all ones): the checksum of command
// payloads and of flash pages.
//
// The code is our own for two reasons: zlib and libcrypto support only other CRC-32 polynomials, and folding 512-bit
// registers is several times faster than the processor's CRC-32C instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvdrive {

std::uint32_t crc32c(std::span<const std::byte> data);

// Computes the same without special instructions: for other processors, and as the reference in tests.
std::uint32_t crc32c_portable(std::span<const std::byte> data);

}  // namespace kvdrive
