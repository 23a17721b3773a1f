// SPDX-License-Identifier: Apache-2.0
// Everything below the commands, opened together: backing file, journal, flash, translation layer and
// what is stored: K and V, blocks, values.
//
// Changes that a commit has written survive the end of the process, and a power loss at any later write. Before a
// commit (flush, FUA, close, or a collection that needs erased blocks) changes are in memory only: that is the volatile
// write cache.
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
#include "values/value_store.hpp"

namespace kvdrive {

struct VolumeOptions {
  std::uint64_t capacity_bytes = std::uint64_t{1} << 30;  // new drive: capacity for K and V
  std::string preset;                                     // empty: the file's, or the default for a new drive
  std::uint32_t pages_per_block = 0;                      // new drive; 0: as in the preset
  bool format = false;                                    // drop a drive's contents; accept an empty file
  bool read_only = false;                                 // open an existing file and never write
  bool salvage = false;                                   // damaged drive: keep the groups that verify
  std::uint64_t snapshot_bytes = 16 << 20;                // least size of changes before a new snapshot
  std::uint64_t cache_bytes =
      0;  // without a flash model: so much K and V is read through the page cache, more around it
  // Drive memory for pages that policy groups has read, and for its index; 0: they are read each time.
  std::uint64_t hot_bytes = 0, index_bytes = 0;
  bool payload = true;            // new drive; false: store no contents, for studies of time
  std::uint32_t worn_erases = 0;  // new drive: erases that all blocks start with
  // Empty values: as stored on the drive, or the defaults of a new one (kv/limits.hpp).
  std::optional<std::uint64_t> staged_bytes, session_groups, metadata_bytes, run_groups;
};

class Volume {
 public:
  static constexpr const char* kDefaultPreset = "970pro";

  // Opens a drive, and creates one if no file exists. Drops the contents of a file only if `format` is set. Throws
  // std::runtime_error with a sentence for the user.
  Volume(const std::filesystem::path& path, const VolumeOptions& options);
  // Commits. Changes that cannot be written then are lost, as after a power cut.
  ~Volume();
  Volume(const Volume&) = delete;
  Volume& operator=(const Volume&) = delete;

  // Makes everything so far durable. If the file cannot be written, it throws and changes nothing.
  void commit();

  // Erases all flash and the journal's past. Precondition: no groups are stored. Throws if the file cannot be written.
  void sanitize();

  // Makes the removal of groups of these families and the session durable, then removes every byte of them from the
  // file. Returns the number of erased blocks. Throws if the file cannot be written; the next call, or the next opening
  // of the volume, removes the rest.
  std::uint64_t erase_dropped(std::span<const Family> families, std::uint32_t session);

  // Compares all maps, spares and contents. Returns one sentence for each disagreement, at most `most`.
  std::vector<std::string> check(std::size_t most = 100);

  // One sentence for each damage found when the volume was opened: it was repaired, or with `salvage` dropped.
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
  ValueStore& values() { return values_; }
  const ValueStore& values() const { return values_; }
  // To be called between commands.
  void work();
  Health& health() { return health_; }
  Faults& faults() { return faults_; }
  // Null if all reads go through the page cache.
  const DirectReads* direct_reads() const { return direct_reads_ ? &*direct_reads_ : nullptr; }

 private:
  void load();
  void replay();
  void write_repairs();
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
  std::optional<DirectReads> direct_reads_;  // absent with a flash model
  Ftl ftl_;
  KvStore store_;
  BlockStore blocks_;
  ValueStore values_;
  Health health_;
  Limits limits_;
  bool limits_changed_ = false;
  bool salvaging_;
  std::vector<std::string> notices_;
};

}  // namespace kvdrive
