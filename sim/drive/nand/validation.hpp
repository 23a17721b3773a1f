// SPDX-License-Identifier: Apache-2.0
// Compares the timing model with published and measured values of the drives that it models.
#pragma once

#include <string>
#include <vector>

namespace kvdrive {

struct ValidationCase {
  std::string preset;
  std::string name;
  std::string unit;
  double reference = 0;
  double ours = 0;

  double error_percent() const { return (ours - reference) / reference * 100; }
};

// Runs every case (a fraction of a second).
std::vector<ValidationCase> validate_timing();

}  // namespace kvdrive
