// SPDX-License-Identifier: Apache-2.0
// Namespace 3: the drive's built-in attention programs, and the memory ranges that they may work on.
//
// EXECUTE_PROGRAM: CDW2 holds program | memory range set << 16, and CDW12-13 the byte of the AttentionJob within the
// set's range. All other fields are 0. Addresses in the job count from the start of the range. The result is the
// engine's status word.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "commands/command.hpp"
#include "commands/local_memory.hpp"
#include "commands/reply.hpp"
#include "commands/wire.hpp"
#include "drive.hpp"

namespace kvdrive::nvme {

// The program that runs a mode of AttentionJob; Programs::kCount if there is none.
std::uint32_t program_of(std::uint8_t mode);

class Programs {
 public:
  static constexpr std::uint32_t kCount = 5;

  Programs(Drive& drive, LocalMemory& memory) : drive_(drive), memory_(memory) {}

  // Admin commands: LOAD_PROGRAM (refused, because all programs are built in), PROGRAM_ACTIVATION, MEMORY_RANGE_SET.
  Reply load(const abi::Sqe& command);
  Reply activate(const abi::Sqe& command);
  Reply change_ranges(const abi::Sqe& command, std::span<const std::byte> data);
  // Bytes of data of a MEMORY_RANGE_SET command.
  static std::uint32_t range_bytes(const abi::Sqe& command);

  Reply execute(const Request& request);

  std::vector<std::byte> descriptors() const;
  std::uint32_t active() const;

 private:
  bool fits(const MemoryRange& range) const;

  Drive& drive_;
  LocalMemory& memory_;
  mutable std::mutex mutex_;
  std::map<std::uint16_t, MemoryRange> sets_;  // by number, starting at 1
};

}  // namespace kvdrive::nvme
