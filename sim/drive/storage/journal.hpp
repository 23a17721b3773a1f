// SPDX-License-Identifier: Apache-2.0
// Metadata on disk: a snapshot, then the changes since, each a transaction that counts whole or not at all.
//
// Two halves take turns. Each start of a half draws a new salt, which the superblock names and every sector of the half
// carries: what an earlier use of the half left behind never counts. A transaction survives the loss of one page of
// each 64 (storage/journal_page.hpp).
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

// Transactions that were durable cannot be read any more.
struct JournalDamaged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Journal {
 public:
  Journal(BackingFile& file, const Superblock& superblock) : file_(file), superblock_(superblock) {}

  // Gives every transaction to `apply`, in order, and continues behind the last one. Pages that were lost and computed
  // from others are named in `notices`. Throws JournalDamaged with a sentence after the last transaction that can be
  // read; a transaction that a power cut interrupted is no damage.
  void replay(const std::function<void(RecordReader)>& apply);
  // Writes repaired pages again, and removes what an interrupted transaction left behind the end.
  void mend();
  const std::vector<std::string>& notices() const { return notices_; }

  bool fits(const RecordWriter& transaction) const;
  // True after a write failed or a transaction could not be read: nothing may follow in this half.
  bool spoiled() const { return spoiled_; }
  // The next commit is a snapshot.
  void end_half() { spoiled_ = true; }
  // True when the changes since the snapshot take more room than it does, and more than `least`; or when a write
  // failed, after which this half takes no more.
  bool outgrew(std::uint64_t least) const { return spoiled_ || head_ > 2 * snapshot_bytes_ + least; }
  // Durable on return.
  void commit(RecordWriter& transaction);

  // Starts the other half; what is appended until `finish_snapshot` replaces everything. The caller abandons
  // it when anything throws: the old half stays in force, unless the superblock may have named the new one already,
  // when nothing can be written any more.
  void begin_snapshot();
  void append(RecordWriter& transaction);
  void finish_snapshot();
  void abandon_snapshot();

  // Notes in the superblock how many transactions there are: if one of them is missing later, the file was damaged.
  void seal();

  // Gives back what does not belong to the present state: the other half, and this one behind the last transaction.
  void discard_past();

  const Superblock& superblock() const { return superblock_; }
  std::uint64_t bytes_written() const { return bytes_written_; }

 private:
  // How far behind the end a transaction is looked for that must not be there.
  static constexpr std::uint64_t kGapBytes = 16 << 20;

  struct Repair {
    std::uint64_t offset;  // in the file
    AlignedBuffer page;
  };
  // What lies behind the last transaction.
  struct Remains {
    std::uint64_t bytes = 0;  // up to the last sector of an interrupted transaction
    bool later = false;       // there is a page of a later transaction
    bool damaged = false;     // there is a page of this transaction that was written whole
  };

  std::uint64_t start() const { return superblock_.journal_offset(superblock_.generation); }
  std::uint64_t room(std::uint64_t offset) const { return superblock_.journal_half_bytes - offset; }
  std::optional<JournalPageHeader> find_header() const;
  bool replay_one(const std::function<void(RecordReader)>& apply);
  Remains look_ahead() const;
  [[noreturn]] void refuse(const std::string& what);

  BackingFile& file_;
  Superblock superblock_;
  std::uint64_t head_ = 0;      // bytes in use in the current half
  std::uint64_t sequence_ = 0;  // of the next transaction
  std::uint64_t snapshot_bytes_ = 0;
  Superblock old_superblock_;
  std::uint64_t old_head_ = 0;
  std::uint64_t old_sequence_ = 0;
  std::uint64_t bytes_written_ = 0;
  bool undecided_ = false;
  bool spoiled_ = false;
  std::vector<Repair> repairs_;
  std::uint64_t remains_bytes_ = 0;
  std::vector<std::string> notices_;
};

}  // namespace kvdrive
