// SPDX-License-Identifier: Apache-2.0
// What a command comes to, before it becomes a completion.
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

struct Reply {
  Status status = abi::kSuccess;
  std::uint64_t result = 0;
  std::vector<std::byte> data{};
  Ns done = 0;  // device time; commands that take none leave it 0
};

// A layout as data of a command.
template <typename T>
std::vector<std::byte> bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto view = std::as_bytes(std::span(&value, 1));
  return {view.begin(), view.end()};
}

// A layout at byte `offset` of data that are long enough.
template <typename T>
T read_as(std::span<const std::byte> data, std::size_t offset = 0) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, data.data() + offset, sizeof value);
  return value;
}

}  // namespace kvdrive::nvme
