// SPDX-License-Identifier: Apache-2.0
// Generated from abi/abi.toml by abi/generate.py; do not edit.
// clang-format off
#pragma once

#include <cstdint>

namespace kvdrive {
namespace abi {

constexpr int kCommandHeadDimStep = 8;
constexpr int kMaxCommandGroup = 128;
constexpr int kFormatPart = 32;
constexpr std::uint32_t kCommandGroups[30] = {
    1, 2, 3, 4, 5, 6, 7, 8,
    9, 10, 11, 12, 13, 14, 15, 16,
    24, 32, 40, 48, 56, 64, 72, 80,
    88, 96, 104, 112, 120, 128,
};
constexpr std::uint32_t kGroups = 0x5;
constexpr std::uint32_t kAppendGroups = 0x4;

}  // namespace abi
}  // namespace kvdrive
