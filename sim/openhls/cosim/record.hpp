// SPDX-License-Identifier: Apache-2.0
// A file of recorded cases (reference.hpp), read word by word.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "ports.hpp"

namespace openhls {

class Record {
 public:
  void load(const char* path) {
    std::FILE* file = std::fopen(path, "rb");
    if (file == nullptr) std::exit(2);
    std::uint32_t word = 0;
    while (std::fread(&word, sizeof word, 1, file) == 1) words_.push_back(word);
    std::fclose(file);
  }

  std::uint32_t next() { return words_.at(position_++); }
  Words next(std::size_t count) {
    const auto first = words_.begin() + static_cast<std::ptrdiff_t>(position_);
    position_ += count;
    return Words(first, first + static_cast<std::ptrdiff_t>(count));
  }

  std::size_t position() const { return position_; }
  void rewind(std::size_t position) { position_ = position; }

 private:
  Words words_;
  std::size_t position_ = 0;
};

}  // namespace openhls
