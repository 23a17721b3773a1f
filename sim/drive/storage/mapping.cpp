// SPDX-License-Identifier: Apache-2.0
#include "storage/mapping.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ratio>
#include <system_error>

#include "common/abi.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14
#endif

namespace kvdrive {
namespace {

constexpr std::uint64_t kReadBytes = 2 << 20;    // bytes to bring in at once
constexpr std::uint64_t kPieceBytes = 64 << 10;  // bytes that share one time stamp

// The current time in ticks of half a second. The system does not evict recently used pages within such a time.
std::uint32_t now_ticks() {
  using HalfSeconds = std::chrono::duration<std::uint32_t, std::ratio<1, 2>>;
  return std::chrono::duration_cast<HalfSeconds>(std::chrono::steady_clock::now().time_since_epoch()).count() + 1;
}

}  // namespace

Mapping::Mapping(int file, std::uint64_t offset, std::uint64_t bytes)
    : file_(file), offset_(offset), bytes_(bytes), fetched_((bytes + kPieceBytes - 1) / kPieceBytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, static_cast<off_t>(offset));
  if (data == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  data_ = static_cast<std::byte*>(data);
  ::madvise(data, bytes, MADV_DONTFORK);  // a child's mapping would keep the file's lock
}

Mapping::~Mapping() { ::munmap(data_, bytes_); }

void Mapping::fetch(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t page = abi::kPageBytes, begin = offset / page * page;
  const std::uint64_t end = std::min((offset + bytes + page - 1) / page * page, bytes_);
  // Pieces fetched in this tick are skipped: with many small readers even asking the system would cost too much.
  const std::uint32_t ticks = now_ticks();
  for (std::uint64_t at = begin; at < end;) {
    std::uint64_t next = at;
    while (next < end && next - at < kReadBytes && fetched_[next / kPieceBytes] != ticks) {
      next = std::min((next / kPieceBytes + 1) * kPieceBytes, end);
    }
    if (next == at) {
      at = (at / kPieceBytes + 1) * kPieceBytes;
      continue;
    }
    if (!resident(at, next)) populate(at, next, end);
    const std::uint64_t first = (at + kPieceBytes - 1) / kPieceBytes;
    const std::uint64_t last = next == bytes_ ? fetched_.size() : next / kPieceBytes;
    for (std::uint64_t piece = first; piece < last; ++piece) fetched_[piece] = ticks;
    at = next;
  }
}

bool Mapping::fetched(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t last = (std::min(offset + bytes, bytes_) + kPieceBytes - 1) / kPieceBytes;
  const std::uint32_t ticks = now_ticks();
  return std::all_of(fetched_.begin() + static_cast<std::ptrdiff_t>(offset / kPieceBytes),
                     fetched_.begin() + static_cast<std::ptrdiff_t>(last),
                     [ticks](std::uint32_t when) { return when == ticks; });
}

// True if the system reports all pages as present. Populating present pages takes half as long as reading them; this
// question takes a hundredth of that.
bool Mapping::resident(std::uint64_t at, std::uint64_t next) const {
  // One byte for each page that `fetch` takes at once. If the system's pages are larger, some bytes stay unused.
  std::array<unsigned char, (kReadBytes + kPieceBytes) / abi::kPageBytes> pages{};
  if (::mincore(data_ + at, next - at, pages.data()) != 0) return false;
  const auto count = static_cast<std::ptrdiff_t>((next - at + abi::kPageBytes - 1) / abi::kPageBytes);
  return std::all_of(pages.begin(), pages.begin() + count, [](unsigned char page) { return (page & 1) != 0; });
}

// Asks the disk for the bytes from `next` up to `end`, then waits for the first part.
void Mapping::populate(std::uint64_t at, std::uint64_t next, std::uint64_t end) const {
  if (next < end) ::madvise(data_ + next, std::min(kReadBytes, end - next), MADV_WILLNEED);
  if (populated(at, next)) return;
  const int failed = errno;
  struct stat status{};
  const bool whole = ::fstat(file_, &status) == 0 && static_cast<std::uint64_t>(status.st_size) >= offset_ + next;
  if (!whole) throw std::system_error(failed, std::generic_category(), "madvise");  // what was cut off is no hole
  while (at < next) {
    const off_t found = ::lseek(file_, static_cast<off_t>(offset_ + at), SEEK_DATA);
    const bool none = found < 0 && errno == ENXIO;  // only a hole up to the end of the file
    const std::uint64_t data = found < 0 ? (none ? next : at) : static_cast<std::uint64_t>(found) - offset_;
    const std::uint64_t hole_end = std::min(next, data / abi::kPageBytes * abi::kPageBytes);
    if (hole_end > at) show_zeros(at, hole_end);
    at = std::max(at, hole_end);
    if (at < next && !populated(at, at + abi::kPageBytes)) {
      throw std::system_error(failed, std::generic_category(), "madvise");
    }
    at += abi::kPageBytes;
  }
}

// Returns false if the system cannot bring the pages in; errno says why.
bool Mapping::populated(std::uint64_t at, std::uint64_t next) const {
  while (::madvise(data_ + at, next - at, MADV_POPULATE_READ) != 0) {
    if (errno == EINVAL) return true;  // older kernel: pages come in when they are touched
    if (errno != EINTR && errno != EAGAIN) return false;
  }
  return true;
}

void Mapping::show_zeros(std::uint64_t at, std::uint64_t next) const {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  if (::mmap(data_ + at, next - at, PROT_READ, flags, -1, 0) == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "mmap");
  }
  for (std::uint64_t page = at; page < next; page += abi::kPageBytes) zeros_.insert(page);
}

void Mapping::show_written(std::uint64_t offset, std::uint64_t bytes) {
  const auto end = zeros_.lower_bound(offset + bytes);
  for (auto page = zeros_.lower_bound(offset / abi::kPageBytes * abi::kPageBytes); page != end;) {
    void* const at = data_ + *page;
    const auto from = static_cast<off_t>(offset_ + *page);
    if (::mmap(at, abi::kPageBytes, PROT_READ, MAP_SHARED | MAP_FIXED, file_, from) == MAP_FAILED) {
      throw std::system_error(errno, std::generic_category(), "mmap");
    }
    ::madvise(at, abi::kPageBytes, MADV_DONTFORK);
    fetched_[*page / kPieceBytes] = 0;
    page = zeros_.erase(page);
  }
}

void Mapping::expect(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t begin = offset / abi::kPageBytes * abi::kPageBytes;
  ::madvise(data_ + begin, offset + bytes - begin, MADV_WILLNEED);
}

}  // namespace kvdrive
