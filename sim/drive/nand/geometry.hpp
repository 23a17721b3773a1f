// SPDX-License-Identifier: Apache-2.0
// The shape of the flash array, and the numbering of its physical units. A unit holds one group of 4 KiB.
//
// A band is the same block of every die. A program writes `pages_per_program` pages of every plane of a die at once. A
// row of a band is one program of each die. Units are numbered band by band, then row by row, then die by die, channels
// first. So consecutive groups fill a flash page, which one sensing reads, before they go on to the next die. In the
// backing file they lie next to each other.
#pragma once

#include <cstdint>

#include "common/abi.hpp"

namespace kvdrive {

using Unit = std::uint32_t;
// A drive has fewer units than this. Larger numbers stand for groups in the write queue (ftl/write_queue.hpp).
constexpr Unit kMostUnits = 0xff000000;

struct Geometry {
  std::uint32_t channels = 0;
  std::uint32_t dies_per_channel = 0;
  std::uint32_t planes = 1;
  std::uint32_t page_bytes = 0;
  std::uint32_t pages_per_program = 1;
  std::uint32_t pages_per_block = 0;
  std::uint32_t blocks_per_die = 0;  // the number of bands; each block spans the planes

  constexpr std::uint32_t dies() const { return channels * dies_per_channel; }
  constexpr std::uint32_t units_per_page() const { return page_bytes / abi::kPageBytes; }
  constexpr std::uint32_t units_per_program() const { return units_per_page() * planes * pages_per_program; }
  constexpr std::uint32_t units_per_row() const { return units_per_program() * dies(); }
  constexpr std::uint32_t rows_per_band() const { return pages_per_block / pages_per_program; }
  constexpr std::uint32_t units_per_block() const { return units_per_program() * rows_per_band(); }
  constexpr std::uint32_t units_per_band() const { return units_per_row() * rows_per_band(); }
  constexpr std::uint64_t units() const { return std::uint64_t{units_per_band()} * blocks_per_die; }

  constexpr bool operator==(const Geometry&) const = default;
};

// The place of a unit on the flash.
struct Place {
  std::uint32_t band = 0;
  std::uint32_t row = 0;  // number of the row within the band
  std::uint32_t die = 0;
  std::uint32_t slot = 0;  // number of the unit within the program
};

}  // namespace kvdrive
