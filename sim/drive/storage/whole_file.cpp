// SPDX-License-Identifier: Apache-2.0
#include "storage/whole_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace kvdrive {
namespace {

constexpr int kMostLinks = 40;

std::filesystem::path followed(std::filesystem::path path) {
  std::error_code ignored;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path, ignored); ++i) {
    path = path.parent_path() / std::filesystem::read_symlink(path);
  }
  return path;
}

[[noreturn]] void throw_errno(const char* call) { throw std::system_error(errno, std::generic_category(), call); }

void sync_folder(const std::filesystem::path& file) {
  const std::filesystem::path parent = file.parent_path();
  const int folder = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) throw_errno("open");
  const int failed = ::fsync(folder) != 0 && errno != EINVAL ? errno : 0;  // some file systems sync no folders
  ::close(folder);
  if (failed != 0) throw std::system_error(failed, std::generic_category(), "fsync");
}

}  // namespace

std::filesystem::path unfinished(const std::filesystem::path& path) {
  std::filesystem::path name = followed(path);
  name += kUnfinished;
  return name;
}

void publish(const std::filesystem::path& path) {
  const std::filesystem::path name = followed(path);
  if (::rename(unfinished(name).c_str(), name.c_str()) != 0) throw_errno("rename");
  sync_folder(name);
}

void remove_unfinished(const std::filesystem::path& path) noexcept {
  std::error_code ignored;
  std::filesystem::remove(unfinished(path), ignored);
}

}  // namespace kvdrive
