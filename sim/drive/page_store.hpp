// SPDX-License-Identifier: Apache-2.0
// Allocation of flash pages and the check that a page still holds what was written.
#pragma once

#include <cstdint>
#include <vector>

#include "backing_file.hpp"

namespace kvdrive {

struct Page {
  std::uint32_t number = 0;
  std::uint32_t crc = 0;
};

class PageStore {
 public:
  explicit PageStore(BackingFile& file) : file_(file) {}

  std::uint64_t available() const { return free_.size() + (file_.pages() - unused_); }
  std::uint64_t pages_read() const { return pages_read_; }
  std::uint64_t pages_written() const { return pages_written_; }

  // Precondition: available() > 0. Throws std::system_error and keeps nothing when the write fails.
  Page write(PageView data);

  // False when the page's checksum differs: its contents are lost.
  [[nodiscard]] bool read(Page page, PageBuffer out);

  void release(Page page) { free_.push_back(page.number); }

 private:
  BackingFile& file_;
  std::vector<std::uint32_t> free_;
  std::uint32_t unused_ = 1;  // pages from here on were never written; page 0 is the superblock
  std::uint64_t pages_read_ = 0;
  std::uint64_t pages_written_ = 0;
};

}  // namespace kvdrive
