// SPDX-License-Identifier: Apache-2.0
// An NVM subsystem: one drive with its namespaces, shared by all controllers.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "commands/admin_context.hpp"
#include "commands/local_memory.hpp"
#include "commands/programs.hpp"
#include "commands/sanitize.hpp"
#include "drive.hpp"

namespace kvdrive::nvme {

struct SubsystemOptions {
  std::string serial;                                 // at most 20 characters; empty: a default
  std::string nqn;                                    // empty: derived from the serial number
  std::uint64_t slm_bytes = std::uint64_t{64} << 20;  // size of namespace 2
};

class Subsystem {
 public:
  // `drive` must outlive the subsystem. Throws std::runtime_error for an invalid serial number or NQN.
  Subsystem(Drive& drive, SubsystemOptions options);

  const std::string& nqn() const { return options_.nqn; }
  const std::string& serial() const { return options_.serial; }
  Drive& drive() { return drive_; }
  const LocalMemory& memory() const { return memory_; }
  Programs& programs() { return programs_; }

  // Executes an I/O command of any namespace. Without `write_cache`, data are durable when the command that stores them
  // completes.
  Reply execute(const Request& request, bool write_cache);

  // FORMAT_NVM: drops sessions and blocks, values, or both.
  Reply format(const abi::Sqe& command);
  Sanitizer& sanitizer() { return sanitizer_; }

  void record_error(QueueId queue, const abi::Sqe& command, std::uint16_t status_word, const Reply& reply);

  // Registers a new controller and returns its number; `detach` releases the number.
  std::uint16_t attach(AdminContext* controller);
  void detach(std::uint16_t id);

 private:
  Reply dispatch(const Command& row, const Request& request, bool write_cache);
  void broadcast(Event event, std::uint32_t enabled_by);
  void count(Direction direction, const Request& request, const Reply& reply);

  Drive& drive_;
  SubsystemOptions options_;
  LocalMemory memory_;
  Programs programs_{drive_, memory_};
  Sanitizer sanitizer_{drive_, memory_};

  std::mutex controllers_mutex_;
  std::vector<AdminContext*> controllers_;  // index is CNTLID - 1; null: free
};

}  // namespace kvdrive::nvme
