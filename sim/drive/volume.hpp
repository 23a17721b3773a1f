// SPDX-License-Identifier: Apache-2.0
// Everything below the commands: backing file, journal, flash, translation layer and KV store, opened together.
//
// What a commit has written survives the end of the process and a loss of power at any later write. Without a commit
// (flush, FUA, close, or collection in need of erased blocks) changes are in memory only: the volatile write cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "block/block_store.hpp"
#include "ftl/ftl.hpp"
#include "kv/kv_store.hpp"
#include "nand/device.hpp"
#include "nand/preset.hpp"
#include "storage/backing_file.hpp"
#include "storage/direct_reads.hpp"
#include "storage/faults.hpp"
#include "storage/health.hpp"
#include "storage/journal.hpp"
#include "storage/media.hpp"
#include "storage/superblock.hpp"

namespace kvdrive {

struct VolumeOptions {
  std::uint64_t capacity_bytes = std::uint64_t{1} << 30;  // of K and V; of a new drive
  std::string preset;                                     // empty: the file's, or the default one for a new drive
  std::uint32_t pages_per_block = 0;                      // of a new drive, 0: the preset's
  bool format = false;                                    // forget what an existing drive holds, take an empty file
  bool read_only = false;                                 // open what is there, never write
  bool salvage = false;                                   // of a damaged drive: keep what verifies, forget the rest
  std::uint64_t snapshot_bytes = 16 << 20;                // a journal that outgrew its snapshot and this starts anew
  std::uint64_t cache_bytes =
      0;                // without a flash model: so much K and V is read through the page cache, more around it
  bool payload = true;  // of a new drive; false: groups have no contents, for studies of time
  std::uint32_t worn_erases = 0;  // that the blocks of a new drive have behind them
  // Nothing: as stored on the drive, or the default of a new one (kv/limits.hpp).
  std::optional<std::uint64_t> staged_bytes, session_groups, metadata_bytes, run_groups;
};

class Volume {
 public:
  static constexpr const char* kDefaultPreset = "970pro";

  // Mounts; creates where no file is; forgets what a file holds only when `format` says so. Throws std::runtime_error
  // with a sentence for the user.
  Volume(const std::filesystem::path& path, const VolumeOptions& options);
  // Commits; what cannot be written then is lost as in a power cut.
  ~Volume();
  Volume(const Volume&) = delete;
  Volume& operator=(const Volume&) = delete;

  // Makes everything so far durable. Throws when the file cannot be written; all is as before then.
  void commit();

  // Precondition: nothing is stored. Erases all flash and what the journal remembers. Throws when the file cannot be
  // written.
  void sanitize();

  // Makes it durable that lists of these families and the session forgot something, then leaves no byte of that in
  // the file. Returns the number of blocks erased. Throws when the file cannot be written: what is left goes with the
  // next call, or when the volume is opened again.
  std::uint64_t erase_forgotten(std::span<const Family> families, std::uint32_t session);

  // Compares all maps, spares and contents. One sentence per disagreement, at most `most`.
  std::vector<std::string> check(std::size_t most = 100);

  // What was damaged when the volume was opened: put right, or with `salvage` lost. One sentence each.
  const std::vector<std::string>& notices() const { return notices_; }
  bool read_only() const { return file_.read_only(); }

  void inject(const Fault& fault);

  const Superblock& superblock() const { return journal_.superblock(); }
  const Preset& preset() const { return preset_; }
  const Limits& limits() const { return limits_; }
  std::uint64_t journal_bytes() const { return journal_.bytes_written(); }
  std::uint64_t file_writes() const { return file_.writes(); }
  NandDevice& device() { return device_; }
  const NandDevice& device() const { return device_; }
  Ftl& ftl() { return ftl_; }
  const Ftl& ftl() const { return ftl_; }
  KvStore& store() { return store_; }
  const KvStore& store() const { return store_; }
  BlockStore& blocks() { return blocks_; }
  const BlockStore& blocks() const { return blocks_; }
  Health& health() { return health_; }
  Faults& faults() { return faults_; }
  // Null: all reads go through the page cache.
  const DirectReads* direct_reads() const { return direct_reads_ ? &*direct_reads_ : nullptr; }

 private:
  void load();
  void replay();
  void mend();
  void salvage();
  void set_limits(const VolumeOptions& options);
  void save_limits(RecordWriter& writer, bool everything) const;
  void snapshot();
  void finish_erasing();

  BackingFile file_;
  std::uint64_t snapshot_bytes_;
  FoundSuperblock found_;
  Journal journal_;
  const Preset& preset_;
  Faults faults_;
  NandDevice device_;
  Media media_;
  std::optional<DirectReads> direct_reads_;  // without a flash model
  Ftl ftl_;
  KvStore store_;
  BlockStore blocks_;
  Health health_;
  Limits limits_;
  bool limits_changed_ = false;
  bool salvaging_;
  std::vector<std::string> notices_;
};

}  // namespace kvdrive
