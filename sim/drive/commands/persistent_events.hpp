// SPDX-License-Identifier: Apache-2.0
// Log page 0Dh: what happened to the drive. It is kept over power cycles; the newest event comes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "commands/reply.hpp"
#include "commands/wire.hpp"
#include "storage/health.hpp"

namespace kvdrive {
class Drive;
}

namespace kvdrive::nvme {

class PersistentEvents {
 public:
  PersistentEvents(Drive& drive, const std::string& serial, const std::string& nqn)
      : drive_(drive), serial_(serial), nqn_(nqn) {}

  void powered_on();
  void timestamp_set(std::uint16_t controller, std::uint64_t before_ms);
  void format_started(const abi::Sqe& command);
  void format_done(const abi::Sqe& command, Status status);
  void sanitize_started(const abi::Sqe& command, std::uint32_t capabilities);
  void sanitize_done(Status status);
  void temperature_crossed(std::uint16_t controller, bool over, std::uint16_t threshold);

  // Reads the page for a controller. Action 1 takes a copy (the context) and reads it, 0 reads on, 2 releases the
  // context, 3 takes one and reads the header. Returns kScCommandSequence if a context exists already, or if none
  // exists.
  Reply read(std::uint16_t controller, std::uint32_t action);
  // Called when the controller was reset: its context is dropped.
  void forget_context(std::uint16_t controller);

 private:
  void add(PersistentEvent type, std::uint16_t controller, std::span<const std::byte> data);
  std::vector<std::byte> page() const;

  Drive& drive_;
  const std::string &serial_, &nqn_;
  std::mutex mutex_;
  std::map<std::uint16_t, std::vector<std::byte>> contexts_;  // by controller identifier
};

}  // namespace kvdrive::nvme
