// SPDX-License-Identifier: Apache-2.0
// A unit's description of itself in the spare area of its flash page: its owner and the checksum of its contents.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "crc32c.hpp"

namespace kvdrive {

// kKeyRows: embedding-indexed K; kBlock: a logical block, `index` its number.
enum class GroupKind : std::uint8_t { kKeys = 0, kValues = 1, kKeyRows = 2, kBlock = 3 };

// The group that a unit was written for. Sessions that share it later do not appear.
struct Owner {
  std::uint32_t session = 0;
  std::uint16_t layer = 0;
  std::uint8_t head = 0;
  GroupKind kind = GroupKind::kKeys;
  std::uint32_t index = 0;
  std::uint16_t row_bytes = 0;  // of K and V: a row's, and 1 when the head keeps what SparF needs
  std::uint16_t sparse = 0;

  bool operator==(const Owner&) const = default;
};

struct Spare {
  std::uint32_t family = 0;  // the lists that may hold the group, at owner.index
  std::uint32_t data_crc = 0;
  std::uint64_t order = 0;  // groups that the drive had stored before this one; moving it does not change that
  Owner owner;
  std::uint32_t written = 0;  // 1: the unit was programmed
  std::uint32_t crc = 0;      // CRC-32C of the fields before

  std::uint32_t expected_crc() const { return crc32c(std::as_bytes(std::span(this, 1)).first(sizeof *this - 4)); }
  bool valid() const { return written == 1 && crc == expected_crc(); }

  bool operator==(const Spare&) const = default;
};
static_assert(sizeof(Spare) == 40 && std::has_unique_object_representations_v<Spare>);

}  // namespace kvdrive
