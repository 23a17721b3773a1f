// SPDX-License-Identifier: Apache-2.0
// The contents of the flash: units and their spares in the backing file.
//
// Programmed rows are gathered in memory and written together, in large asynchronous writes. A unit is read from memory
// until it is written, then from the page cache.
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
  // Writes start when this many bytes have gathered, or with `drain`.
  static constexpr std::size_t kWriteBytes = 1 << 20;
  // The most unwritten bytes in memory.
  static constexpr std::size_t kUnwrittenBytes = 16 << 20;

  Media(BackingFile& file, const Superblock& superblock);

  // Returns an empty buffer for a row; reuses memory of an earlier row.
  AlignedBuffer buffer();

  // Takes one row of a band: contents and spares of the units from `first` on.
  void program(Unit first, AlignedBuffer data, std::span<const Spare> spares);

  // Returns the contents of a unit, kPageBytes long. Valid until the next `program`.
  const std::byte* unit(Unit unit) const;
  // Like `unit`, but returns null for a unit that is in the file.
  const std::byte* unwritten_unit(Unit unit) const;
  Spare spare(Unit unit) const;
  // Reads units and their spares from the disk into the page cache. Throws std::system_error when the disk cannot read
  // them.
  void fetch(Unit first, std::uint32_t count) const;
  void fetch_spares(Unit first, std::uint32_t count) const;
  // Reads contents and spares through the file. A page that was never written reads as zeros and takes no memory.
  void copy(Unit first, std::uint32_t count, std::span<std::byte> contents, std::span<Spare> spares) const;
  // True if the units were fetched recently. Not safe to call concurrently with `fetch`.
  bool fetched(Unit first, std::uint32_t count) const;

  // For reads around the page cache: the position of a unit in the file. `expect_spares` asks the disk for spares and
  // does not wait.
  std::uint64_t file_offset(Unit unit) const {
    return superblock_.unit_offset() + std::uint64_t{unit} * abi::kPageBytes;
  }
  void expect_spares(Unit first, std::uint32_t count) const;

  // `blank` is true if contents and spares of `rows` rows, starting at unit `first`, are as in a new file. `discard`
  // makes them so. Precondition of both: the rows are written (`drain`).
  bool blank(Unit first, std::uint32_t rows) const;
  void discard(Unit first, std::uint32_t rows);
  // Discards the contents of units without a valid spare.
  void discard_units(Unit first, std::uint32_t count);

  // Writes all rows to the file; the caller must sync. Throws std::system_error; rows that could not be written stay in
  // memory.
  void drain();

  bool keeps_payload() const { return superblock_.payload != 0; }

 private:
  struct Row {
    AlignedBuffer data, spares;
    std::uint32_t pending = 0;  // number of writes in flight
    bool gathered = true;       // no write of this row has started
  };
  using Rows = std::map<Unit, Row>;  // key: the row's first unit

  void write_behind();
  void write_parts(Rows::iterator first, Rows::iterator last, AlignedBuffer Row::* what, std::uint64_t offset);
  void show_written(Unit first, const Row& row);
  void forget_written();
  const Row* unwritten(Unit unit) const;
  std::uint64_t spare_offset(Unit unit) const;
  std::pair<std::uint64_t, std::uint64_t> spare_windows(Unit first, std::uint32_t count) const;
  std::uint64_t rows_bytes(std::uint32_t rows) const;

  BackingFile& file_;
  const Superblock superblock_;
  Mapping units_, spares_;
  const AlignedBuffer zeros_{abi::kPageBytes};
  mutable std::pair<std::uint64_t, std::uint64_t> expected_{};  // the spare range last requested by `expect_spares`
  Rows rows_;
  std::size_t unwritten_bytes_ = 0;
  std::size_t gathered_bytes_ = 0;
  std::size_t memory_kept_ = 0;
  std::vector<AlignedBuffer> spare_memory_, data_memory_;  // buffers of written rows, for reuse
};

}  // namespace kvdrive
