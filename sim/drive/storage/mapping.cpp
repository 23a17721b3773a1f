// SPDX-License-Identifier: Apache-2.0
#include "storage/mapping.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "common/abi.hpp"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14
#endif

namespace kvdrive {
namespace {

constexpr std::uint64_t kAhead = 2 << 20;

}  // namespace

Mapping::Mapping(int file, std::uint64_t offset, std::uint64_t bytes) : bytes_(bytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, static_cast<off_t>(offset));
  if (data == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  data_ = static_cast<std::byte*>(data);
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

void Mapping::fetch(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t page = abi::kPageBytes, begin = offset / page * page;
  const std::uint64_t end = std::min((offset + bytes + page - 1) / page * page, bytes_);
  // A large piece is asked of the disk while the one before it arrives.
  for (std::uint64_t at = begin; at < end; at += kAhead) {
    const std::uint64_t next = std::min(at + kAhead, end);
    if (next < end) ::madvise(data_ + next, std::min(kAhead, end - next), MADV_WILLNEED);
    while (::madvise(data_ + at, next - at, MADV_POPULATE_READ) != 0) {
      if (errno == EINVAL) return;  // an older kernel: pages come in when they are touched
      if (errno != EINTR && errno != EAGAIN) throw std::system_error(errno, std::generic_category(), "madvise");
    }
  }
}

void Mapping::expect(std::uint64_t offset, std::uint64_t bytes) const {
  const std::uint64_t begin = offset / abi::kPageBytes * abi::kPageBytes;
  ::madvise(data_ + begin, offset + bytes - begin, MADV_WILLNEED);
}

}  // namespace kvdrive
