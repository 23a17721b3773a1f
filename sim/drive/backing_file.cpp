// SPDX-License-Identifier: Apache-2.0
#include "backing_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

namespace kvdrive {
namespace {

constexpr char kMagic[8] = {'k', 'v', 'd', 'r', 'i', 'v', 'e', '\n'};
constexpr std::uint32_t kFormatVersion = 1;

struct Superblock {
  char magic[8];
  std::uint32_t format_version;
  std::uint32_t page_bytes;
  std::uint32_t pages;
};

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& reason) {
  throw std::runtime_error("cannot use " + path.string() + " as a drive: " + reason);
}

[[noreturn]] void fail(const char* call) { throw std::system_error(errno, std::generic_category(), call); }

off_t offset_of(std::uint32_t page) { return static_cast<off_t>(page) * abi::kPageBytes; }

// Transfers the whole page; the operating system may do it in pieces.
template <typename Byte, typename Call>
void transfer(std::uint32_t page, std::span<Byte, abi::kPageBytes> buffer, const char* name, Call call) {
  std::size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t count = call(buffer.data() + done, buffer.size() - done, offset_of(page) + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = EIO;
    if (count <= 0) fail(name);
    done += static_cast<std::size_t>(count);
  }
}

// Leaves every file alone that is not ours to overwrite.
void check_existing(int descriptor, const std::filesystem::path& path) {
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) fail("fstat");
  if (!S_ISREG(status.st_mode)) refuse(path, "it is no regular file");
  if (status.st_size == 0) return;
  Superblock superblock{};
  const bool whole = ::pread(descriptor, &superblock, sizeof superblock, 0) == static_cast<ssize_t>(sizeof superblock);
  if (!whole || std::memcmp(superblock.magic, kMagic, sizeof kMagic) != 0) {
    refuse(path, "it holds something else; choose another path");
  }
  if (superblock.format_version != kFormatVersion || superblock.page_bytes != abi::kPageBytes) {
    refuse(path, "it has format " + std::to_string(superblock.format_version) + " with pages of " +
                     std::to_string(superblock.page_bytes) + " bytes, this program writes format " +
                     std::to_string(kFormatVersion) + " with pages of " + std::to_string(abi::kPageBytes) +
                     "; remove it or choose another path");
  }
}

}  // namespace

BackingFile::BackingFile(const std::filesystem::path& path, std::uint32_t pages)
    : descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)), pages_(pages) {
  if (descriptor_ < 0) refuse(path, std::strerror(errno));
  try {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) refuse(path, "another drive has it open");
    check_existing(descriptor_, path);
    if (::ftruncate(descriptor_, 0) != 0 || ::ftruncate(descriptor_, offset_of(pages)) != 0) {
      refuse(path, std::strerror(errno));
    }
    Superblock superblock{};
    std::memcpy(superblock.magic, kMagic, sizeof kMagic);
    superblock.format_version = kFormatVersion;
    superblock.page_bytes = abi::kPageBytes;
    superblock.pages = pages;
    std::array<std::byte, abi::kPageBytes> page{};
    std::memcpy(page.data(), &superblock, sizeof superblock);
    write(0, page);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

BackingFile::~BackingFile() { ::close(descriptor_); }

void BackingFile::read(std::uint32_t page, PageBuffer out) const {
  transfer(page, out, "pread",
           [this](std::byte* to, std::size_t size, off_t at) { return ::pread(descriptor_, to, size, at); });
}

void BackingFile::write(std::uint32_t page, PageView data) {
  transfer(page, data, "pwrite",
           [this](const std::byte* from, std::size_t size, off_t at) { return ::pwrite(descriptor_, from, size, at); });
}

}  // namespace kvdrive
