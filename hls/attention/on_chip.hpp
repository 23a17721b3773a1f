// SPDX-License-Identifier: Apache-2.0
// Large on-chip memories. Synthesis sees a plain array. Software must not put megabytes on the stack of whoever calls
// a kernel, and several threads may run kernels at once: there the memory is an object of the call that takes its
// storage from the heap as far as addresses are used.
#pragma once

#include "common/types.hpp"

#ifdef KVDRIVE_SYNTHESIS

namespace kvdrive {

template <typename T, int kDepth>
using OnChip = T[kDepth];

}  // namespace kvdrive

#else

#include <cstddef>
#include <stdexcept>
#include <vector>

namespace kvdrive {

template <typename T, int kDepth>
class OnChip {
 public:
  OnChip() = default;
  OnChip(const OnChip&) = delete;
  OnChip& operator=(const OnChip&) = delete;

  T& operator[](std::size_t address) {
    if (address >= kDepth) throw std::out_of_range("address beyond an on-chip memory");
    if (address >= words_.size()) words_.resize(address + 1);
    return words_[address];
  }

 private:
  std::vector<T> words_;
};

}  // namespace kvdrive

#endif
