// SPDX-License-Identifier: Apache-2.0
// The outcome of a command, before it becomes a completion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "common/abi.hpp"
#include "nand/timing.hpp"

namespace kvdrive::nvme {

// abi::NvmeStatus or nvme::StatusCode: status code type << 8 | status code.
using Status = std::uint32_t;

// The error log names the byte of the entry at which a refused command is wrong. This value names no byte.
inline constexpr std::uint16_t kNoLocation = 0xffff;
inline constexpr std::uint16_t kInOpcode = 0, kInFlags = 1, kInNsid = 4, kInCdw2 = 8, kInCdw10 = 40, kInCdw11 = 44,
                               kInCdw12 = 48;

struct Reply {
  Status status = abi::kSuccess;
  std::uint64_t result = 0;
  std::vector<std::byte> data{};
  Ns done = 0;  // device time; 0 for commands that take none
  std::uint16_t location = kNoLocation;
  std::uint64_t lba = 0;  // the block at which the error is
  bool lost = false;      // contents of flash were lost, although the command succeeded
};

// Converts a layout to the data of a command.
template <typename T>
std::vector<std::byte> bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto view = std::as_bytes(std::span(&value, 1));
  return {view.begin(), view.end()};
}

// Reads a layout at byte `offset`. Precondition: the data are long enough.
template <typename T>
T read_as(std::span<const std::byte> data, std::size_t offset = 0) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, data.data() + offset, sizeof value);
  return value;
}

}  // namespace kvdrive::nvme
