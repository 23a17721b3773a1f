// SPDX-License-Identifier: Apache-2.0
// SANITIZE by block erase: afterwards no stored data remain in any flash block, in the journal or in the drive's
// memory. The operation is over when the command completes. The status is that of the last operation since the drive
// was opened.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "commands/local_memory.hpp"
#include "commands/reply.hpp"
#include "drive.hpp"

namespace kvdrive::nvme {

class Sanitizer {
 public:
  Sanitizer(Drive& drive, LocalMemory& memory) : drive_(drive), memory_(memory) {}

  // CDW10: the action in bits 2:0 (1 leaves the failure state, 2 is block erase); bit 9 (no deallocation afterwards) is
  // refused.
  Reply start(const abi::Sqe& command);
  // To be called when something was stored.
  void stored() { untouched_ = false; }

  // Log page 81h.
  std::vector<std::byte> status() const;

 private:
  Drive& drive_;
  LocalMemory& memory_;
  std::atomic<std::uint16_t> state_ = 0;
  std::atomic<std::uint32_t> command_ = 0;  // CDW10
  std::atomic<bool> untouched_ = false;
};

}  // namespace kvdrive::nvme
