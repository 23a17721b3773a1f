// SPDX-License-Identifier: Apache-2.0
// Limits on the resources of sessions. They are stored on the drive and stay valid until they are changed.
#pragma once

#include <cstdint>
#include <type_traits>

namespace kvdrive {

struct Limits {
  std::uint64_t staged_bytes = 256 << 20;  // drive memory for the staged rows of all sessions
  std::uint64_t session_groups = 0;        // groups in flash of one session; 0: no limit
  std::uint64_t metadata_bytes = 0;        // drive memory for maps, bands and sessions
  std::uint64_t run_groups = 0;  // groups of a head that go to flash together; 0: derived from the metadata budget

  // One byte for each group of the drive, plus a fixed part for small drives.
  static constexpr std::uint64_t default_metadata_bytes(std::uint64_t capacity_units) {
    return (std::uint64_t{16} << 20) + capacity_units;
  }

  // Space in the journal for a snapshot of staged rows and metadata.
  constexpr std::uint64_t journal_bytes() const {
    return 2 * (staged_bytes + metadata_bytes) + (std::uint64_t{64} << 20);
  }

  constexpr bool operator==(const Limits&) const = default;
};
static_assert(std::has_unique_object_representations_v<Limits>);

}  // namespace kvdrive
