// SPDX-License-Identifier: Apache-2.0
// Metadata on disk: a snapshot, then the changes since, each a transaction that counts whole or not at all.
//
// Two halves take turns. Transactions carry the generation of their half and a running number; the first one that does
// not fit, or whose checksum is wrong, ends the journal.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "storage/backing_file.hpp"
#include "storage/records.hpp"
#include "storage/superblock.hpp"

namespace kvdrive {

class Journal {
 public:
  // A writer with room for the header of a transaction.
  static RecordWriter make_transaction(std::function<void(RecordWriter&)> spill = {});

  Journal(BackingFile& file, const Superblock& superblock) : file_(file), superblock_(superblock) {}

  // Gives every transaction to `apply`, in order, and continues behind the last one.
  void replay(const std::function<void(RecordReader)>& apply);

  bool fits(const RecordWriter& transaction) const;
  // The changes since the snapshot take more room than it does, and more than `least`.
  bool outgrew(std::uint64_t least) const { return head_ > 2 * snapshot_bytes_ + least; }
  // The caller syncs.
  void append(RecordWriter& transaction);

  // Starts the other half; what is appended until `finish_snapshot` replaces everything. The caller abandons
  // it when anything throws: the old half stays in force, unless the superblock may have named the new one already,
  // when nothing can be written any more.
  void begin_snapshot();
  void finish_snapshot();
  void abandon_snapshot();

  // Gives back what does not belong to the present state: the other half, and this one behind the last transaction.
  void discard_past();

  const Superblock& superblock() const { return superblock_; }
  std::uint64_t bytes_written() const { return bytes_written_; }

 private:
  struct Header;
  // How far behind the end a transaction is looked for that must not be there.
  static constexpr std::uint64_t kGapBytes = 16 << 20;

  std::optional<Header> header_at(std::uint64_t offset) const;
  void refuse_gap() const;

  BackingFile& file_;
  Superblock superblock_;
  std::uint64_t head_ = 0;      // bytes in use in the current half
  std::uint64_t sequence_ = 0;  // of the next transaction
  std::uint64_t snapshot_bytes_ = 0;
  std::uint64_t old_head_ = 0;
  std::uint64_t old_sequence_ = 0;
  std::uint64_t bytes_written_ = 0;
  bool undecided_ = false;
};

}  // namespace kvdrive
