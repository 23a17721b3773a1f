// SPDX-License-Identifier: Apache-2.0
// Numbers with undefined contents, aligned to a beat. Clearing them would cost as much as a short job.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "common/abi.hpp"

namespace kvdrive::fast {

class AlignedDoubles {
 public:
  explicit AlignedDoubles(std::size_t size)
      : numbers_(static_cast<double*>(::operator new(size * sizeof(double), std::align_val_t{abi::kBeatBytes}))) {}

  operator double*() const { return numbers_.get(); }  // NOLINT(google-explicit-constructor): behaves like an array

 private:
  struct Release {
    void operator()(double* numbers) const { ::operator delete(numbers, std::align_val_t{abi::kBeatBytes}); }
  };
  std::unique_ptr<double, Release> numbers_;
};

}  // namespace kvdrive::fast
