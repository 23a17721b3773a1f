// SPDX-License-Identifier: Apache-2.0
// The data that Identify returns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "commands/admin_context.hpp"
#include "commands/reply.hpp"

namespace kvdrive::nvme {

class Subsystem;

inline constexpr std::string_view kModelName = "kvdrive software drive";
// Supports block erase; blocks are always deallocated afterwards.
inline constexpr std::uint32_t kSanitizeCapabilities = 0x2 | 1u << 29;

// Fills a text field of the standard: padded with blanks.
template <std::size_t N>
void put_text(std::uint8_t (&field)[N], std::string_view text) {
  std::ranges::fill(field, ' ');
  std::copy_n(text.begin(), std::min(N, text.size()), field);
}

Reply identify(Subsystem& subsystem, const ControllerOptions& options, std::uint16_t controller_id,
               const abi::Sqe& command);

}  // namespace kvdrive::nvme
