// SPDX-License-Identifier: Apache-2.0
// The file that stands in for the drive. Whole pages are written around the page cache and read through it.
//
// Writes bypass the cache in large pieces (docs/drive.md has the measurement). Reads use the cache because a group is
// read many times. A file that a drive writes is refused to any other drive; several drives may open a file for reading
// only. The lock belongs to the process that opened the file: a forked child has the descriptors too, and must not
// write.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "process.hpp"
#include "storage/async_transfers.hpp"
#include "storage/mapping.hpp"
#include "storage/power_cut.hpp"

namespace kvdrive {

class BackingFile {
 public:
  static constexpr unsigned kMostWritesInFlight = 16;

  // kReadOnly: never writes, so the file may be write-protected. kMake: creates the file for its owner alone, or takes
  // over what a killed process left under this name.
  enum class Access : std::uint8_t { kReadWrite, kReadOnly, kMake };

  // Opens the file, which exists unless `access` is kMake. Throws std::runtime_error with a sentence for the user.
  explicit BackingFile(const std::filesystem::path& path, Access access = Access::kReadWrite);
  BackingFile(const BackingFile&) = delete;
  BackingFile& operator=(const BackingFile&) = delete;
  ~BackingFile();

  const std::filesystem::path& path() const { return path_; }
  bool read_only() const { return access_ == Access::kReadOnly; }
  std::uint64_t size() const;
  // Reads the first `out.size()` bytes; bytes beyond the end of the file are zeros.
  void peek(std::span<std::byte> out) const;
  // Extends the file with zeros to `bytes`.
  void extend(std::uint64_t bytes);
  // Drops the contents and makes the file a sparse one of `bytes`, for its owner alone.
  void recreate(std::uint64_t bytes);

  // Offsets and sizes are whole pages, and memory to write is page aligned. All methods throw std::system_error when
  // the operating system fails, and PowerLost after a simulated power cut.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  void read(std::uint64_t offset, std::span<const iovec> parts) const;
  void write(std::uint64_t offset, std::span<const std::byte> data);
  void write(std::uint64_t offset, std::span<const iovec> parts);
  // Like `write`, for a few bytes, in whole sectors, that may come to the disk with the next `sync`: they wait in the
  // page cache.
  void note(std::uint64_t offset, std::span<const std::byte> data);
  // Like `write`, but may happen later: at the latest in the next `flush_writes`. `done` gets 0 or an errno.
  void write_behind(std::uint64_t offset, std::span<const iovec> parts, AsyncTransfers::Done done);
  void flush_writes() { writer_.wait(0); }
  void wait(unsigned most) { writer_.wait(most); }
  unsigned in_flight() const { return writer_.in_flight(); }
  void sync();
  // True if all of these bytes are zeros. Takes no time for bytes that were never written, or were discarded.
  bool blank(std::uint64_t offset, std::uint64_t bytes) const;
  // Returns whole pages to the file system; they read as zeros afterwards.
  void discard(std::uint64_t offset, std::uint64_t bytes);

  // Maps the bytes as memory. The mapping shows what was written before the last `flush_writes`.
  Mapping map(std::uint64_t offset, std::uint64_t bytes) const { return {cached_, offset, bytes}; }

  // The descriptor for transfers around the page cache; an ordinary one if the file system does not support these.
  int direct() const { return direct_; }
  bool has_direct() const { return direct_ != cached_; }

  // Fault injection: after `after` more writes, the next `count` writes find the file system full.
  void fill(std::uint64_t after, std::uint64_t count) {
    good_writes_ = after;
    full_writes_ = count;
  }

  PowerCut& power_cut() { return power_cut_; }
  std::uint64_t writes() const { return writes_; }

 private:
  void must_be_writable() const;
  bool finds_no_room();
  void write_until_cut(std::uint64_t offset, std::span<const iovec> parts);
  void write_cached(std::uint64_t offset, std::span<const std::byte> data);

  std::filesystem::path path_;
  Access access_;
  OwnerProcess owner_;
  int cached_;
  int direct_;  // opened without the page cache; equal to `cached_` if the file system does not support that
  PowerCut power_cut_;
  std::uint64_t writes_ = 0;
  std::uint64_t good_writes_ = 0, full_writes_ = 0;  // injected faults
  AsyncTransfers writer_{kMostWritesInFlight};
};

}  // namespace kvdrive
