// SPDX-License-Identifier: Apache-2.0
// The shape of the flash array, and how a unit number (one 4 KiB group) becomes a place in it.
//
// Numbers run slot, die, program, block: consecutive programs of all dies lie side by side in the backing file. Dies
// are numbered channel first, so that consecutive dies are on different channels. A program writes the same page of
// every plane of a die, `pages_per_program` pages at once.
#pragma once

#include <cstdint>

#include "common/abi.hpp"

namespace kvdrive {

using Unit = std::uint32_t;

struct Geometry {
  std::uint32_t channels = 0;
  std::uint32_t dies_per_channel = 0;
  std::uint32_t planes = 1;
  std::uint32_t page_bytes = 0;
  std::uint32_t pages_per_program = 1;
  std::uint32_t pages_per_block = 0;
  std::uint32_t blocks_per_die = 0;  // each spans the planes

  constexpr std::uint32_t dies() const { return channels * dies_per_channel; }
  constexpr std::uint32_t units_per_page() const { return page_bytes / abi::kPageBytes; }
  constexpr std::uint32_t units_per_program() const { return units_per_page() * planes * pages_per_program; }
  constexpr std::uint32_t programs_per_block() const { return pages_per_block / pages_per_program; }
  constexpr std::uint32_t units_per_block() const { return units_per_program() * programs_per_block(); }
  constexpr std::uint64_t units() const { return std::uint64_t{units_per_block()} * blocks_per_die * dies(); }

  constexpr bool operator==(const Geometry&) const = default;
};

struct Place {
  std::uint32_t die = 0;
  std::uint32_t block = 0;    // of the die
  std::uint32_t program = 0;  // of the block
  std::uint32_t slot = 0;     // of the program
};

constexpr Place place_of(const Geometry& g, Unit unit) {
  const std::uint32_t slot = unit % g.units_per_program();
  const std::uint32_t row = unit / g.units_per_program();
  const std::uint32_t line = row / g.dies();
  return {row % g.dies(), line / g.programs_per_block(), line % g.programs_per_block(), slot};
}

constexpr Unit unit_at(const Geometry& g, const Place& p) {
  const std::uint32_t line = p.block * g.programs_per_block() + p.program;
  return (line * g.dies() + p.die) * g.units_per_program() + p.slot;
}

}  // namespace kvdrive
