// SPDX-License-Identifier: Apache-2.0
// What admin commands ask of the controller that they came through; nvme/controller.hpp is the one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "commands/command.hpp"

namespace kvdrive::nvme {

class Subsystem;

using QueueId = std::uint16_t;  // 0: admin

// What a transport promises and asks for; it appears in Identify and in CAP.
struct ControllerOptions {
  bool fabrics = false;  // Connect makes queues and Keep Alive is mandatory; else Create/Delete SQ and CQ make them
  std::string host_nqn{};
  std::array<std::uint8_t, 16> host_id{};
  std::uint16_t max_queue_entries = 1024;
  std::uint16_t max_io_queues = 64;
  std::uint32_t max_transfer_bytes = 0;   // a power of two times 4096; 0: no limit
  std::uint32_t in_capsule_bytes = 8192;  // fabrics: data behind a command on I/O queues
  std::uint16_t max_sgl_descriptors = 1;  // fabrics: of one command
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
  // The temperature is outside of the controller's thresholds.
  virtual bool temperature_warning() = 0;
  virtual Reply create_cq(const abi::Sqe& command) = 0;
  virtual Reply create_sq(const abi::Sqe& command) = 0;
  virtual Reply delete_cq(const abi::Sqe& command) = 0;
  virtual Reply delete_sq(const abi::Sqe& command) = 0;
  virtual Reply abort(const abi::Sqe& command) = 0;
  // Nothing where the completion comes with an event.
  virtual std::optional<Reply> wait_for_event(const abi::Sqe& command) = 0;

  // Tells the host of an event where it wants to know. `enabled_by`: the bit of its feature, 0: every host does.
  virtual void raise(Event event, std::uint32_t enabled_by) = 0;
  // The host has read a log page: further events of its type are told.
  virtual void acknowledge(std::uint32_t log_page) = 0;
};

}  // namespace kvdrive::nvme
