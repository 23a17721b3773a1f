// SPDX-License-Identifier: Apache-2.0
// The contents of the flash: units and their spares in the backing file.
//
// Programs gather in memory and go to the file side by side, in large writes; `drain` completes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "storage/aligned_buffer.hpp"
#include "storage/backing_file.hpp"
#include "storage/spare.hpp"
#include "storage/superblock.hpp"

namespace kvdrive {

struct UnitRead {
  Unit unit = 0;
  std::byte* out = nullptr;  // kPageBytes
};

class Media {
 public:
  // Programs that wait for the file at most; `drain_some` keeps to it.
  static constexpr std::size_t kStagedBytes = 4 << 20;

  Media(BackingFile& file, const Superblock& superblock) : file_(file), superblock_(superblock) {}

  // `data` and `spares` of the units_per_program() units from `first` on.
  void program(Unit first, AlignedBuffer data, std::span<const Spare> spares);

  // Any order; neighbours are read together.
  void read(std::span<const UnitRead> reads);

  Spare spare(Unit unit);

  // To the file; the caller syncs. What could not be written stays.
  void drain();
  void drain_some() {
    if (staged_bytes_ > kStagedBytes) drain_units();
  }

 private:
  struct Sector {
    AlignedBuffer bytes;
    bool dirty = false;
  };

  void drain_units();
  std::uint64_t spare_offset(Unit unit) const;
  Sector& sector_at(std::uint64_t offset);

  BackingFile& file_;
  const Superblock superblock_;
  std::map<Unit, AlignedBuffer> staged_;
  std::size_t staged_bytes_ = 0;
  std::map<std::uint64_t, Sector> sectors_;  // of the spare area, by their offset in the file
};

}  // namespace kvdrive
