// SPDX-License-Identifier: Apache-2.0
// DEVICE_SELF_TEST: the drive checks itself. The test is over when the command completes.
//
// Short: the engine computes attention with a known result (segment 1). Extended: also, maps, spares and the contents
// of all pages agree (segment 2).
#pragma once

#include <cstdint>
#include <vector>

#include "commands/command.hpp"

namespace kvdrive::nvme {

class SelfTest {
 public:
  explicit SelfTest(Drive& drive) : drive_(drive) {}

  // CDW10: 1 short, 2 extended, Fh abort (nothing runs that could be).
  Reply start(const abi::Sqe& command, std::uint64_t power_on_hours);
  // Log page 06h, kept with the drive's health.
  std::vector<std::byte> log() const;

 private:
  Drive& drive_;
};

}  // namespace kvdrive::nvme
