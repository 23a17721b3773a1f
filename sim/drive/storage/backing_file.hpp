// SPDX-License-Identifier: Apache-2.0
// The file that stands in for the drive: whole pages, written around the page cache, read through it.
//
// Writes bypass the cache, in large pieces (docs/drive.md has the measurement); reads use it because a group is read
// many times. A file that another drive has open is refused; several may read it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "storage/async_transfers.hpp"
#include "storage/mapping.hpp"
#include "storage/power_cut.hpp"

namespace kvdrive {

class BackingFile {
 public:
  static constexpr unsigned kMostWritesInFlight = 16;

  // kReadOnly: opens what is there and never writes, so the file may be write-protected.
  enum class Access : std::uint8_t { kReadWrite, kReadOnly };

  // Opens, or creates where nothing is. Throws std::runtime_error with a sentence for the user.
  explicit BackingFile(const std::filesystem::path& path, Access access = Access::kReadWrite);
  BackingFile(const BackingFile&) = delete;
  BackingFile& operator=(const BackingFile&) = delete;
  ~BackingFile();

  const std::filesystem::path& path() const { return path_; }
  bool created() const { return created_; }
  bool read_only() const { return access_ == Access::kReadOnly; }
  std::uint64_t size() const;
  // The first `out.size()` bytes, zeros beyond the end.
  void peek(std::span<std::byte> out) const;
  // Adds zeros up to `bytes`.
  void extend(std::uint64_t bytes);
  // Drops the contents and makes a sparse file of `bytes`.
  void recreate(std::uint64_t bytes);

  // Offsets and sizes are whole pages, memory to write is page aligned. All throw std::system_error when the operating
  // system fails and PowerLost after a simulated power cut.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  void read(std::uint64_t offset, std::span<const iovec> parts) const;
  void write(std::uint64_t offset, std::span<const std::byte> data);
  void write(std::uint64_t offset, std::span<const iovec> parts);
  // The same, done by the next `flush_writes` at the latest. `done` gets 0 or an errno.
  void write_behind(std::uint64_t offset, std::span<const iovec> parts, AsyncTransfers::Done done);
  void flush_writes() { writer_.wait(0); }
  void wait(unsigned most) { writer_.wait(most); }
  unsigned in_flight() const { return writer_.in_flight(); }
  void sync();
  // Whether all of these bytes are zeros. Takes no time for what was never written, or given back.
  bool blank(std::uint64_t offset, std::uint64_t bytes) const;
  // Gives whole pages back to the file system: they read as zeros.
  void discard(std::uint64_t offset, std::uint64_t bytes);

  // The bytes as memory; see what was written before the last `flush_writes`.
  Mapping map(std::uint64_t offset, std::uint64_t bytes) const { return {cached_, offset, bytes}; }

  // For transfers around the page cache, where the file system knows these.
  int direct() const { return direct_; }
  bool has_direct() const { return direct_ != cached_; }

  // Fault injection: after `after` more writes, `count` find no room.
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
  bool created_ = false;
  int cached_;
  int direct_;  // the same file without the page cache, or `cached_` where the file system cannot
  PowerCut power_cut_;
  std::uint64_t writes_ = 0;
  std::uint64_t good_writes_ = 0, full_writes_ = 0;  // injected
  AsyncTransfers writer_{kMostWritesInFlight};
};

}  // namespace kvdrive
