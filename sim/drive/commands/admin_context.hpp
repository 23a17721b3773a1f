// SPDX-License-Identifier: Apache-2.0
// The interface between admin commands and the controller that received them (nvme/controller.hpp implements it).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "commands/command.hpp"

namespace kvdrive::nvme {

class Subsystem;

using QueueId = std::uint16_t;  // 0: admin

// The properties of a transport, as Identify and CAP report them.
struct ControllerOptions {
  bool fabrics = false;  // true: Connect creates queues and Keep Alive is mandatory; false: Create/Delete SQ and CQ
  std::string host_nqn{};
  std::array<std::uint8_t, 16> host_id{};
  std::uint16_t max_queue_entries = 1024;
  std::uint16_t max_io_queues = 64;
  std::uint32_t max_transfer_bytes = 0;   // a power of two times 4096; 0: no limit
  std::uint32_t in_capsule_bytes = 8192;  // fabrics: most data in the capsule of an I/O command
  std::uint16_t max_sgl_descriptors = 1;  // fabrics: most descriptors of one command
};

// An asynchronous event: type | information << 8 | log page << 16.
using Event = std::uint32_t;

class AdminContext {
 public:
  virtual ~AdminContext() = default;

  virtual Subsystem& subsystem() = 0;
  virtual std::uint16_t id() const = 0;
  virtual const ControllerOptions& options() const = 0;

  virtual Reply get_feature(const Request& request) = 0;
  virtual Reply set_feature(const Request& request) = 0;
  // True if the temperature is outside the controller's thresholds.
  virtual bool temperature_warning() = 0;
  virtual Reply create_cq(const abi::Sqe& command) = 0;
  virtual Reply create_sq(const abi::Sqe& command) = 0;
  virtual Reply delete_cq(const abi::Sqe& command) = 0;
  virtual Reply delete_sq(const abi::Sqe& command) = 0;
  virtual Reply abort(const abi::Sqe& command) = 0;
  // Returns nothing if the completion will come with an event.
  virtual std::optional<Reply> wait_for_event(const abi::Sqe& command) = 0;

  // Reports an event to the host if it enabled the event. `enabled_by`: the event's bit in the feature; 0: always
  // reported.
  virtual void raise(Event event, std::uint32_t enabled_by) = 0;
  // The host has read the log page, so further events of its type are reported again.
  virtual void acknowledge(std::uint32_t log_page) = 0;
};

}  // namespace kvdrive::nvme
