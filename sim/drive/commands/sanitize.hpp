// SPDX-License-Identifier: Apache-2.0
// SANITIZE by block erase: what was stored is in no flash block, journal or memory of the drive any more. The operation
// is over when the command completes; its status is that of the last one since the drive was opened.
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

  // CDW10: action in bits 2:0 (1 leave the failure state, 2 block erase), 9 no deallocation afterwards (refused).
  Reply start(const abi::Sqe& command);
  // Something was stored since.
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
