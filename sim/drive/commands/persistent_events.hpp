// SPDX-License-Identifier: Apache-2.0
// Log page 0Dh: what happened to the drive, kept over power cycles. Newest first.
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

  // The page as a controller reads it: action 1 fixes what it reads (its context), 0 reads on, 2 ends that, 3 fixes it
  // and reads the header. kScCommandSequence where the context is there already, or is not.
  Reply read(std::uint16_t controller, std::uint32_t action);
  // The controller was reset.
  void forget_context(std::uint16_t controller);

 private:
  void add(PersistentEvent type, std::uint16_t controller, std::span<const std::byte> data);
  std::vector<std::byte> page() const;

  Drive& drive_;
  const std::string &serial_, &nqn_;
  std::mutex mutex_;
  std::map<std::uint16_t, std::vector<std::byte>> contexts_;  // by controller
};

}  // namespace kvdrive::nvme
