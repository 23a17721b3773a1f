// SPDX-License-Identifier: Apache-2.0
// The drive's metadata in the file: a snapshot, then transactions with later changes. Each transaction counts as a
// whole or not at all.
//
// The journal alternates between two halves. Each start of a half draws a new salt. The superblock names the salt and
// every sector of the half carries it, so remains of earlier uses never count. A transaction survives the loss of one
// page in each 64 (storage/journal_page.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "storage/backing_file.hpp"
#include "storage/journal_page.hpp"
#include "storage/records.hpp"
#include "storage/superblock.hpp"

namespace kvdrive {

// Thrown when transactions that were durable cannot be read any more.
struct JournalDamaged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Journal {
 public:
  Journal(BackingFile& file, const Superblock& superblock) : file_(file), superblock_(superblock) {}

  // Passes every transaction to `apply`, in order, and continues behind the last one. `notices` names pages that were
  // lost and computed from others. Throws JournalDamaged with a sentence after the last readable transaction, also when
  // transactions behind it are known to be missing. A transaction that a power cut interrupted is no damage.
  void replay(const std::function<void(RecordReader)>& apply);
  // Writes repaired pages back, and removes the remains of an interrupted transaction behind the end.
  void write_repairs();
  const std::vector<std::string>& notices() const { return notices_; }

  bool fits(const RecordWriter& transaction) const;
  // True after a write failed or a transaction could not be read. Nothing may be appended to this half then.
  bool half_ended() const { return half_ended_; }
  // Makes the next commit a snapshot.
  void end_half() { half_ended_ = true; }
  // True if the changes take more room than the snapshot and `least` together, or if this half has ended.
  bool outgrew(std::uint64_t least) const { return half_ended_ || head_ > 2 * snapshot_bytes_ + least; }
  // The transaction is durable on return.
  void commit(RecordWriter& transaction);

  // Starts the other half; what is appended until `finish_snapshot` replaces the whole state. If anything throws, the
  // caller must call `abandon_snapshot`. The old half then stays valid, unless the superblock may already name the new
  // one: nothing can be written any more in that case.
  void begin_snapshot();
  void append(RecordWriter& transaction);
  void finish_snapshot();
  void abandon_snapshot();

  // Stores the number of transactions in the superblock. If one of them is missing later, the file was damaged.
  void seal();

  // Returns unused space to the file system: the other half, and this half behind the last transaction.
  void discard_past();

  const Superblock& superblock() const { return superblock_; }
  std::uint64_t bytes_written() const { return bytes_written_; }

 private:
  // Transactions that must not exist are searched for in this many bytes behind the end.
  static constexpr std::uint64_t kGapBytes = 16 << 20;

  struct Repair {
    std::uint64_t offset;  // position in the file
    AlignedBuffer page;
  };
  // What was found behind the last transaction.
  struct Remains {
    std::uint64_t bytes = 0;  // up to the last sector that an interrupted transaction wrote
    bool later = false;       // there is a page of a later transaction
    bool damaged = false;     // there is a damaged page of this transaction, with all sectors written
  };

  std::uint64_t start() const { return superblock_.journal_offset(superblock_.generation); }
  std::uint64_t room(std::uint64_t offset) const { return superblock_.journal_half_bytes - offset; }
  std::optional<JournalPageHeader> find_header() const;
  void note_acknowledged();
  bool replay_one(const std::function<void(RecordReader)>& apply);
  Remains look_ahead() const;
  [[noreturn]] void refuse(const std::string& what);

  BackingFile& file_;
  Superblock superblock_;
  std::uint64_t head_ = 0;      // bytes used in the current half
  std::uint64_t sequence_ = 0;  // number of the next transaction
  std::uint64_t snapshot_bytes_ = 0;
  Superblock old_superblock_;
  std::uint64_t old_head_ = 0;
  std::uint64_t old_sequence_ = 0;
  std::uint64_t bytes_written_ = 0;
  bool undecided_ = false;
  bool half_ended_ = false;
  std::vector<Repair> repairs_;
  std::uint64_t remains_bytes_ = 0;
  std::uint64_t noted_ = 0;  // transactions that the file is known to have had
  std::vector<std::string> notices_;
};

}  // namespace kvdrive
