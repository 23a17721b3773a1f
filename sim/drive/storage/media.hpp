// SPDX-License-Identifier: Apache-2.0
// The contents of the flash: units and their spares in the backing file.
//
// Rows gather in memory and go to the file side by side, in large writes behind the caller's back. Contents are read
// where they are: in the rows that wait, or in the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "storage/aligned_buffer.hpp"
#include "storage/backing_file.hpp"
#include "storage/spare.hpp"
#include "storage/superblock.hpp"

namespace kvdrive {

class Media {
 public:
  // A write to the file has this size or more, unless `drain` asks for it.
  static constexpr std::size_t kWriteBytes = 1 << 20;
  // What the file has not got yet, at most.
  static constexpr std::size_t kStagedBytes = 16 << 20;

  Media(BackingFile& file, const Superblock& superblock);

  // An empty buffer for a row, perhaps with memory from before.
  AlignedBuffer buffer();

  // A row of a band: the contents and the spares of the units from `first` on.
  void program(Unit first, AlignedBuffer data, std::span<const Spare> spares);

  // kPageBytes. Valid until the next `program`.
  const std::byte* unit(Unit unit) const;
  // Null when it is in the file.
  const std::byte* staged_unit(Unit unit) const;
  Spare spare(Unit unit) const;
  // Brings units and their spares in from the disk. Throws std::system_error when it cannot read them.
  void fetch(Unit first, std::uint32_t count) const;
  void fetch_spares(Unit first, std::uint32_t count) const;
  // Whether `fetch` was a moment ago.
  bool fetched(Unit first, std::uint32_t count) const;

  // For reads around the page cache: where a unit is in the file; spares are asked for, without waiting.
  std::uint64_t file_offset(Unit unit) const {
    return superblock_.unit_offset() + std::uint64_t{unit} * abi::kPageBytes;
  }
  void expect_spares(Unit first, std::uint32_t count) const;

  // `rows` rows, from the one that starts with `first`: whether contents and spares are as in a new file, and making
  // them so. None of them waits to be written.
  bool blank(Unit first, std::uint32_t rows) const;
  void discard(Unit first, std::uint32_t rows);
  // The contents of units that no spare describes.
  void discard_units(Unit first, std::uint32_t count);

  // To the file; the caller syncs. What could not be written stays. Throws std::system_error.
  void drain();

  bool keeps_payload() const { return superblock_.payload != 0; }

 private:
  struct Row {
    AlignedBuffer data, spares;
    std::uint32_t pending = 0;  // writes in flight
    bool waits = true;
  };
  using Rows = std::map<Unit, Row>;  // by the first unit

  void write_behind();
  void write_parts(Rows::iterator first, Rows::iterator last, AlignedBuffer Row::* what, std::uint64_t offset);
  void forget_written();
  const Row* staged(Unit unit) const;
  std::uint64_t spare_offset(Unit unit) const;
  std::pair<std::uint64_t, std::uint64_t> spare_windows(Unit first, std::uint32_t count) const;
  std::uint64_t rows_bytes(std::uint32_t rows) const;

  BackingFile& file_;
  const Superblock superblock_;
  const Mapping units_, spares_;
  const AlignedBuffer zeros_{abi::kPageBytes};
  mutable std::pair<std::uint64_t, std::uint64_t> expected_{};  // of the spare area, what was asked for last
  Rows rows_;
  std::size_t staged_bytes_ = 0;
  std::size_t waiting_bytes_ = 0;
  std::size_t memory_kept_ = 0;
  std::vector<AlignedBuffer> spare_memory_, data_memory_;  // to be used again
};

}  // namespace kvdrive
