// SPDX-License-Identifier: Apache-2.0
// The file that stands in for the flash: pages of kPageBytes, page 0 is the superblock.
//
// The contents are scratch: opening a file recreates it empty. An existing file that is not a backing file of this
// format is left alone and refused, and so is a file that another drive has open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "common/abi.hpp"

namespace kvdrive {

using PageView = std::span<const std::byte, abi::kPageBytes>;
using PageBuffer = std::span<std::byte, abi::kPageBytes>;

class BackingFile {
 public:
  // `pages` counts the superblock. Throws std::runtime_error with a sentence for the user.
  BackingFile(const std::filesystem::path& path, std::uint32_t pages);
  BackingFile(const BackingFile&) = delete;
  BackingFile& operator=(const BackingFile&) = delete;
  ~BackingFile();

  std::uint32_t pages() const { return pages_; }

  // Throw std::system_error when the operating system fails.
  void read(std::uint32_t page, PageBuffer out) const;
  void write(std::uint32_t page, PageView data);

 private:
  int descriptor_;
  std::uint32_t pages_;
};

}  // namespace kvdrive
