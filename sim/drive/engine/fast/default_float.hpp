// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfenv>

namespace kvdrive::fast {

// While this object lives, its thread rounds to nearest even with subnormals, whatever mode the host program has set.
class DefaultFloat {
 public:
  DefaultFloat() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloat() { std::fesetenv(&saved_); }
  DefaultFloat(const DefaultFloat&) = delete;
  DefaultFloat& operator=(const DefaultFloat&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace kvdrive::fast
