// SPDX-License-Identifier: Apache-2.0
// The spare area of a flash page describes each unit: its owner and the checksum of its contents.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "crc32c.hpp"

namespace kvdrive {

// kKeyRows: embedding-indexed K. kKeyIndex: the 2-bit index of K. kBlock: a logical block, whose number is `index`.
// kValue: a page of a value under a key; `session` is the checksum of the key.
enum class GroupKind : std::uint8_t { kKeys = 0, kValues = 1, kKeyRows = 2, kBlock = 3, kValue = 4, kKeyIndex = 5 };

// The logical group that a unit was written for. Sessions that share the group later are not recorded.
struct Owner {
  std::uint32_t session = 0;
  std::uint16_t layer = 0;
  std::uint8_t head = 0;
  GroupKind kind = GroupKind::kKeys;
  std::uint32_t index = 0;
  std::uint16_t row_bytes = 0;  // K and V: bytes of a row
  std::uint8_t layout = 0;      // K and V: RowLayout::code
  std::uint8_t removals = 0;    // removals from the middle of the list before the group was written, modulo 256

  bool operator==(const Owner&) const = default;
};

struct Spare {
  std::uint32_t family = 0;  // family of lists that may hold the group at owner.index
  std::uint32_t data_crc = 0;
  std::uint64_t order = 0;  // number of groups that the drive had stored before; unchanged when the group moves
  Owner owner;
  std::uint32_t written = 0;  // 1: the unit was programmed
  std::uint32_t crc = 0;      // CRC-32C of the fields above

  std::uint32_t expected_crc() const { return crc32c(std::as_bytes(std::span(this, 1)).first(sizeof *this - 4)); }
  bool valid() const { return written == 1 && crc == expected_crc(); }

  bool operator==(const Spare&) const = default;
};
static_assert(sizeof(Spare) == 40 && std::has_unique_object_representations_v<Spare>);

}  // namespace kvdrive
