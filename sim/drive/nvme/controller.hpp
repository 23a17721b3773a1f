// SPDX-License-Identifier: Apache-2.0
// An NVMe controller without a transport: properties, queues, admin and I/O commands.
//
// One controller serves one host association; all controllers share a Subsystem. A transport (rings in shared memory,
// or TCP) asks `transfer` which data a command carries, fetches them, calls `execute`, and sends the response. Every
// method may be called from any thread. Commands of different queues run concurrently as far as the drive allows.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "commands/admin_context.hpp"
#include "commands/features.hpp"
#include "commands/reply.hpp"
#include "commands/wire.hpp"
#include "common/abi.hpp"

namespace kvdrive::nvme {

struct Response {
  abi::Cqe cqe{};  // complete except for a ring's phase bit
  std::vector<std::byte> data{};

  Status status() const { return cqe.status >> abi::kCqeStatusShift & 0x7ff; }
};

// Implemented by a transport whose queues lie in memory.
class QueueMemory {
 public:
  virtual ~QueueMemory() = default;
  // `address` is the PRP entry of the command; the queue is physically contiguous. Any status but success refuses the
  // queue.
  virtual Status create_cq(QueueId id, std::uint32_t entries, std::uint64_t address) = 0;
  virtual Status create_sq(QueueId id, std::uint32_t entries, std::uint64_t address, QueueId cq) = 0;
  virtual void delete_sq(QueueId id) = 0;
  virtual void delete_cq(QueueId id) = 0;
};

class Controller : private AdminContext {
 public:
  using Clock = std::chrono::steady_clock;
  // Receives completions that come after their `execute` has returned: asynchronous events and aborted commands. It is
  // called without any of the controller's locks, from the thread that caused the completion. It must not call the
  // controller.
  using Deliver = std::function<void(QueueId, Response)>;

  // `memory` is null for fabrics. All referenced objects must outlive the controller.
  Controller(Subsystem& subsystem, ControllerOptions options, Deliver deliver, QueueMemory* memory = nullptr);
  ~Controller() override;
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  std::uint16_t id() const override { return id_; }
  const ControllerOptions& options() const override { return options_; }

  // The property (register) at `offset`, read with 4 or 8 bytes; empty if there is no property of that size.
  std::optional<std::uint64_t> property(std::uint32_t offset, std::uint32_t bytes) const;
  // Writing CC enables, resets or shuts down. A reset (EN to 0) drops outstanding commands and deletes the I/O queues.
  // After a shutdown (SHN) everything is durable when CSTS reports completion, which is before this method returns.
  // Returns kInvalidField for a property that cannot be written.
  Status set_property(std::uint32_t offset, std::uint32_t bytes, std::uint64_t value);
  bool ready() const;

  // Fabrics Connect: creates the queue `id`. Returns kInvalidField if the queue exists or is out of range, and
  // kCommandSequence for an I/O queue of a controller that is not ready.
  Status connect_queue(QueueId id, std::uint32_t entries);
  void disconnect_queue(QueueId id);

  Transfer transfer(QueueId queue, const abi::Sqe& command) const;

  // Executes a command to its end. Returns nothing if the completion comes later through Deliver, or never (after a
  // reset, or with the injected fault of a lost completion). No content of a command makes it throw. The transport
  // handles Fabrics commands (7Fh) itself.
  std::optional<Response> execute(QueueId queue, const abi::Sqe& command, const DataBuffer& data);

  // Completes a command that the transport answers itself (a refused command, a Fabrics command): counts it and fills
  // in the SQ head.
  Response refuse(QueueId queue, const abi::Sqe& command, Status status);

  // The keep-alive timeout in ms; 0 turns it off. Connect or Set Features sets it. The transport polls
  // `keep_alive_expired` and then ends the association.
  void set_keep_alive(std::uint32_t milliseconds);
  std::uint32_t keep_alive() const;
  bool keep_alive_expired(Clock::time_point now) const;

 private:
  struct Queue {
    std::uint32_t entries = 0;
    std::uint32_t head = 0;
    QueueId cq = 0;
  };
  using LateResponses = std::vector<std::pair<QueueId, Response>>;

  void enable();
  void reset();
  void shut_down();
  Response complete(QueueId queue, const abi::Sqe& command, Reply&& reply);
  std::optional<Response> execute_admin(const abi::Sqe& command, const DataBuffer& data);
  std::optional<Response> execute_io(QueueId queue, const abi::Sqe& command, const DataBuffer& data);
  void match_events(LateResponses& late);
  std::uint16_t sq_head(QueueId queue) const;

  // AdminContext:
  Subsystem& subsystem() override { return subsystem_; }
  Reply get_feature(const Request& request) override;
  Reply set_feature(const Request& request) override;
  bool temperature_warning() override;
  Reply create_cq(const abi::Sqe& command) override;
  Reply create_sq(const abi::Sqe& command) override;
  Reply delete_cq(const abi::Sqe& command) override;
  Reply delete_sq(const abi::Sqe& command) override;
  Reply abort(const abi::Sqe& command) override;
  std::optional<Reply> wait_for_event(const abi::Sqe& command) override;
  void raise(Event event, std::uint32_t enabled_by) override;
  void acknowledge(std::uint32_t log_page) override;

  Subsystem& subsystem_;
  const ControllerOptions options_;
  const Deliver deliver_;
  QueueMemory* const memory_;
  std::uint16_t id_ = 0;

  mutable std::mutex mutex_;
  std::uint32_t cc_ = 0, csts_ = 0, aqa_ = 0;
  std::uint64_t asq_ = 0, acq_ = 0;
  std::map<QueueId, Queue> queues_;
  std::map<QueueId, std::uint32_t> completion_queues_;  // by identifier: number of entries (memory transport only)
  std::deque<abi::Sqe> event_requests_;                 // requests that wait for an event
  std::deque<Event> events_;                            // events that wait for a request
  std::uint32_t told_events_ = 0;  // a bit per event type that was reported and whose log page was not read since
  std::vector<std::pair<QueueId, abi::Sqe>> stuck_;  // commands that never complete by themselves (an injected fault)
  Features features_;
  Clock::time_point last_sign_of_life_ = Clock::now();
};

}  // namespace kvdrive::nvme
