// SPDX-License-Identifier: Apache-2.0
// A way to a drive's commands: the drive is in this process, or another process of this machine serves it at a socket.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "commands/reply.hpp"
#include "common/abi.hpp"
#include "configuration.hpp"

namespace kvdrive::llama {

struct DriveUsage {
  std::uint64_t capacity_bytes = 0, free_bytes = 0;
  std::uint64_t commands = 0, failed_commands = 0;
  std::uint64_t pages_read = 0, staged_bytes_read = 0, pages_written = 0;
  // Around the page cache; 0 for a drive that is served elsewhere. Pieces that were read before their query, and in
  // vain.
  std::uint64_t file_reads = 0, file_bytes_read = 0, pieces_early = 0, pieces_unused = 0;
};

class DrivePort {
 public:
  DrivePort() = default;
  DrivePort(const DrivePort&) = delete;
  DrivePort& operator=(const DrivePort&) = delete;
  virtual ~DrivePort() = default;

  // Executes a command. `room`: the most bytes that may come back. May be called from several threads. Throws
  // std::runtime_error with a sentence if the drive does not answer.
  virtual nvme::Reply execute(const abi::Sqe& command, std::span<const std::byte> data, std::uint64_t room) = 0;
  // Numbers of all sessions, also those of others.
  virtual std::vector<std::uint32_t> sessions() = 0;
  virtual DriveUsage usage() = 0;
  // Bytes of K and V that were read for this process; nothing where others read, too.
  virtual std::optional<std::uint64_t> bytes_read() = 0;
  // Why the latest command with status INTERNAL_ERROR failed; empty where nothing is known.
  virtual std::string failure() const = 0;
  // True if nobody else uses the drive meanwhile.
  virtual bool exclusive() const = 0;
};

// Opens the drive that the configuration names. Throws std::runtime_error with a sentence for the user.
std::unique_ptr<DrivePort> open_drive(const Configuration& configuration);

}  // namespace kvdrive::llama
