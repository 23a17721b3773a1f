// SPDX-License-Identifier: Apache-2.0
// What sessions may use of the drive. Stored on it: they hold until somebody sets others.
#pragma once

#include <cstdint>
#include <type_traits>

namespace kvdrive {

struct Limits {
  std::uint64_t tail_bytes = 256 << 20;  // rows that wait in drive memory, of all sessions
  std::uint64_t session_groups = 0;      // flash of one session, 0: no limit
  std::uint64_t metadata_bytes = 0;      // drive memory for maps, bands and sessions
  std::uint64_t run_groups = 0;          // groups of a head that go to flash together; 0: as the budget asks for

  // A byte for each group of the drive, and some for small ones.
  static constexpr std::uint64_t default_metadata_bytes(std::uint64_t capacity_units) {
    return (std::uint64_t{16} << 20) + capacity_units;
  }

  // Room that a snapshot of all of it takes in the journal.
  constexpr std::uint64_t journal_bytes() const {
    return 2 * (tail_bytes + metadata_bytes) + (std::uint64_t{64} << 20);
  }

  constexpr bool operator==(const Limits&) const = default;
};
static_assert(std::has_unique_object_representations_v<Limits>);

}  // namespace kvdrive
