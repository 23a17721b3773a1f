// SPDX-License-Identifier: Apache-2.0
#include "storage/backing_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace kvdrive {
namespace {

[[noreturn]] void refuse_file(const std::filesystem::path& path, const std::string& reason) {
  throw std::runtime_error("cannot use " + path.string() + " as a drive: " + reason);
}

[[noreturn]] void fail(const char* call) { throw std::system_error(errno, std::generic_category(), call); }

// Transfers all parts. One system call may transfer only a part of them, so it is repeated.
template <typename Call>
void transfer(std::uint64_t offset, std::span<const iovec> parts, const char* name, Call call) {
  std::vector<iovec> left(parts.begin(), parts.end());
  std::size_t first = 0;
  while (first < left.size()) {
    const auto count = static_cast<int>(std::min<std::size_t>(left.size() - first, IOV_MAX));
    ssize_t done = call(left.data() + first, count, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = EIO;
    if (done <= 0) fail(name);
    offset += static_cast<std::uint64_t>(done);
    for (; done > 0 && static_cast<std::size_t>(done) >= left[first].iov_len; ++first) {
      done -= static_cast<ssize_t>(left[first].iov_len);
    }
    if (done > 0) {
      left[first].iov_base = static_cast<std::byte*>(left[first].iov_base) + done;
      left[first].iov_len -= static_cast<std::size_t>(done);
    }
  }
}

constexpr mode_t kPrivate = 0600;  // K, V and weights are nobody else's

iovec part_of(std::span<const std::byte> data) {
  return {const_cast<std::byte*>(data.data()), data.size()};  // the writing call does not change the data
}

}  // namespace

BackingFile::BackingFile(const std::filesystem::path& path, Access access)
    : path_(path), access_(access), cached_(-1), direct_(-1) {
  const int way = read_only() ? O_RDONLY : access == Access::kMake ? O_RDWR | O_CREAT : O_RDWR;
  cached_ = direct_ = ::open(path.c_str(), way | O_CLOEXEC, kPrivate);
  if (cached_ < 0) refuse_file(path, std::strerror(errno));
  try {
    struct stat status{}, named{};
    if (::fstat(cached_, &status) != 0) fail("fstat");
    if (!S_ISREG(status.st_mode)) refuse_file(path, "it is no regular file");
    if (::flock(cached_, (read_only() ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0)
      refuse_file(path, "another drive has it open");
    // The name may belong to another file by now: this one was replaced or removed after it was opened.
    const bool same =
        ::stat(path.c_str(), &named) == 0 && named.st_dev == status.st_dev && named.st_ino == status.st_ino;
    if (!same) refuse_file(path, "another process has just replaced it; try again");
    const int direct = ::open(path.c_str(), (way & ~O_CREAT) | O_DIRECT | O_CLOEXEC);
    if (direct >= 0) direct_ = direct;
    writer_.take_turns(DiskQueue::of(cached_));
  } catch (...) {
    if (direct_ != cached_) ::close(direct_);
    ::close(cached_);
    throw;
  }
  close_in_children(cached_);
  if (has_direct()) close_in_children(direct_);
}

BackingFile::~BackingFile() {
  for (const int file : {cached_, direct_}) forget_in_children(file);
  if (has_direct()) ::close(direct_);
  ::close(cached_);
}

std::uint64_t BackingFile::size() const {
  struct stat status{};
  if (::fstat(cached_, &status) != 0) fail("fstat");
  return static_cast<std::uint64_t>(status.st_size);
}

void BackingFile::peek(std::span<std::byte> out) const {
  const ssize_t count = ::pread(cached_, out.data(), out.size(), 0);
  if (count < 0) fail("pread");
  std::ranges::fill(out.subspan(static_cast<std::size_t>(count)), std::byte{});
}

void BackingFile::must_be_writable() const {
  owner_.require();
  if (read_only()) throw std::runtime_error(path_.string() + " was opened for reading only");
}

bool BackingFile::finds_no_room() {
  if (full_writes_ == 0) return false;
  if (good_writes_ > 0) {
    --good_writes_;
    return false;
  }
  --full_writes_;
  return true;
}

void BackingFile::extend(std::uint64_t bytes) {
  must_be_writable();
  if (::ftruncate(cached_, static_cast<off_t>(bytes)) != 0) refuse_file(path_, std::strerror(errno));
}

void BackingFile::recreate(std::uint64_t bytes) {
  must_be_writable();
  if (::fchmod(cached_, kPrivate) != 0 || ::ftruncate(cached_, 0) != 0 ||
      ::ftruncate(cached_, static_cast<off_t>(bytes)) != 0) {
    refuse_file(path_, std::strerror(errno));
  }
}

void BackingFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (out.empty()) return;
  const iovec part = part_of(out);
  read(offset, std::span(&part, 1));
}

void BackingFile::read(std::uint64_t offset, std::span<const iovec> parts) const {
  power_cut_.check();
  transfer(offset, parts, "pread",
           [this](const iovec* part, int count, off_t at) { return ::preadv(cached_, part, count, at); });
}

void BackingFile::write(std::uint64_t offset, std::span<const std::byte> data) {
  const iovec part = part_of(data);
  write(offset, std::span(&part, 1));
}

void BackingFile::write(std::uint64_t offset, std::span<const iovec> parts) {
  must_be_writable();
  if (finds_no_room()) {
    errno = ENOSPC;
    fail("pwrite");
  }
  if (power_cut_.armed()) {
    write_until_cut(offset, parts);
  } else {
    transfer(offset, parts, "pwrite",
             [this](const iovec* part, int count, off_t to) { return ::pwritev(direct_, part, count, to); });
  }
  ++writes_;
}

void BackingFile::note(std::uint64_t offset, std::span<const std::byte> data) {
  must_be_writable();
  if (power_cut_.armed()) {
    const iovec part = part_of(data);
    write_until_cut(offset, std::span(&part, 1));
  } else {
    write_cached(offset, data);
  }
  ++writes_;
}

void BackingFile::write_behind(std::uint64_t offset, std::span<const iovec> parts, AsyncTransfers::Done done) {
  must_be_writable();
  if (power_cut_.armed() || full_writes_ > 0) {
    if (finds_no_room()) return done(ENOSPC);
    write(offset, parts);
    done(0);
    return;
  }
  writer_.write(direct_, offset, parts, std::move(done));
  ++writes_;
}

void BackingFile::write_until_cut(std::uint64_t offset, std::span<const iovec> parts) {
  for (const iovec& part : parts) {
    const std::span data(static_cast<const std::byte*>(part.iov_base), part.iov_len);
    power_cut_.before_write(
        offset, data, [this](std::uint64_t from, std::span<std::byte> out) { read(from, out); },
        [this](std::uint64_t to, std::span<const std::byte> bytes) { write_cached(to, bytes); });
    write_cached(offset, data);
    offset += data.size();
  }
}

// Writes through the page cache, for pieces smaller than a page.
void BackingFile::write_cached(std::uint64_t offset, std::span<const std::byte> data) {
  const iovec part = part_of(data);
  transfer(offset, std::span(&part, 1), "pwrite",
           [this](const iovec* from, int count, off_t to) { return ::pwritev(cached_, from, count, to); });
}

bool BackingFile::blank(std::uint64_t offset, std::uint64_t bytes) const {
  constexpr std::uint64_t kPiece = 1 << 20;
  std::vector<std::byte> piece;
  for (const std::uint64_t end = offset + bytes; offset < end;) {
    const off_t data = ::lseek(cached_, static_cast<off_t>(offset), SEEK_DATA);
    if (data < 0 && errno == ENXIO) return true;  // only holes up to the end of the file
    if (data >= 0) offset = static_cast<std::uint64_t>(data);
    if (offset >= end) return true;
    piece.resize(std::min(kPiece, end - offset));
    read(offset, piece);
    if (std::ranges::any_of(piece, [](std::byte byte) { return byte != std::byte{}; })) return false;
    offset += piece.size();
  }
  return true;
}

void BackingFile::discard(std::uint64_t offset, std::uint64_t bytes) {
  must_be_writable();
  power_cut_.check();
  if (bytes == 0) return;
  const auto at = static_cast<off_t>(offset), length = static_cast<off_t>(bytes);
  if (::fallocate(cached_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, length) != 0) fail("fallocate");
}

void BackingFile::sync() {
  power_cut_.before_sync();
  if (::fdatasync(cached_) != 0) fail("fdatasync");
}

}  // namespace kvdrive
