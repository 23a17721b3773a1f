// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, reflected polynomial 82f63b78h, initial and final value all ones): the checksum of command
// payloads and of flash pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvdrive {

std::uint32_t crc32c(std::span<const std::byte> data);

// The same without the processor's instruction.
std::uint32_t crc32c_portable(std::span<const std::byte> data);

}  // namespace kvdrive
