// SPDX-License-Identifier: Apache-2.0
// DEVICE_SELF_TEST: the drive tests itself. The test is over when the command completes.
//
// The short test lets the engine compute attention with a known result (segment 1). The extended test also compares
// maps, spares and the contents of all pages (segment 2).
#pragma once

#include <cstdint>
#include <vector>

#include "commands/command.hpp"

namespace kvdrive::nvme {

class SelfTest {
 public:
  explicit SelfTest(Drive& drive) : drive_(drive) {}

  // CDW10: 1 short, 2 extended, Fh abort. An abort finds nothing to stop, because tests end within their command.
  Reply start(const abi::Sqe& command, std::uint64_t power_on_hours);
  // Log page 06h; stored with the drive's health.
  std::vector<std::byte> log() const;

 private:
  Drive& drive_;
};

}  // namespace kvdrive::nvme
