// SPDX-License-Identifier: Apache-2.0
// An NVMe controller without a transport: properties, queues, admin and I/O commands.
//
// One per host association; all share a Subsystem. A transport (rings in shared memory, TCP) fetches the data that
// `transfer` announces, calls `execute`, and sends what comes back. Every method may be called from any thread;
// commands of different queues run side by side as far as the drive allows.
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
  abi::Cqe cqe{};  // complete but for the phase bit of a ring
  std::vector<std::byte> data{};

  Status status() const { return cqe.status >> abi::kCqeStatusShift & 0x7ff; }
};

// A transport whose queues lie in memory.
class QueueMemory {
 public:
  virtual ~QueueMemory() = default;
  // `address` is the PRP entry of the command, physically contiguous. A status other than success refuses the queue.
  virtual Status create_cq(QueueId id, std::uint32_t entries, std::uint64_t address) = 0;
  virtual Status create_sq(QueueId id, std::uint32_t entries, std::uint64_t address, QueueId cq) = 0;
  virtual void delete_sq(QueueId id) = 0;
  virtual void delete_cq(QueueId id) = 0;
};

class Controller : private AdminContext {
 public:
  using Clock = std::chrono::steady_clock;
  // Completions that come later than their `execute`: async events, aborted ones. Called without any lock of the
  // controller held, from the thread that caused it; must not call back.
  using Deliver = std::function<void(QueueId, Response)>;

  // `memory` is null for fabrics. All references outlive the controller.
  Controller(Subsystem& subsystem, ControllerOptions options, Deliver deliver, QueueMemory* memory = nullptr);
  ~Controller() override;
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  std::uint16_t id() const override { return id_; }
  const ControllerOptions& options() const override { return options_; }

  // Property (register) at `offset` with 4 or 8 bytes; nothing where there is none of that size.
  std::optional<std::uint64_t> property(std::uint32_t offset, std::uint32_t bytes) const;
  // CC: enable, reset (EN to 0: outstanding commands vanish, I/O queues are deleted), shutdown (SHN: everything durable
  // when CSTS says that it is complete, which is before this returns). kInvalidField for what cannot be written.
  Status set_property(std::uint32_t offset, std::uint32_t bytes, std::uint64_t value);
  bool ready() const;

  // Fabrics Connect: the queue `id` exists from now on. Fails with kInvalidField for one that exists or is out of
  // range, kCommandSequence for I/O queues of a controller that is not ready.
  Status connect_queue(QueueId id, std::uint32_t entries);
  void disconnect_queue(QueueId id);

  Transfer transfer(QueueId queue, const abi::Sqe& command) const;

  // Executes a command to its end. Nothing is returned when the completion comes later, through Deliver, or never
  // (reset, lost completion fault). Never throws for what a command says. Fabrics commands (7Fh) are the transport's
  // own.
  std::optional<Response> execute(QueueId queue, const abi::Sqe& command, const DataBuffer& data);

  // A completion of the transport's own (a command that it refuses, fabrics): counts it and fills in SQ head.
  Response refuse(QueueId queue, const abi::Sqe& command, Status status);

  // Keep-alive timeout in ms, 0: off. Set by Connect or Set Features; `keep_alive_expired` is for the transport to ask
  // now and then, and to end the association.
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

  // AdminContext
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
  std::map<QueueId, std::uint32_t> completion_queues_;  // memory transport: entries
  std::deque<abi::Sqe> event_requests_;                 // waiting for an event
  std::deque<Event> events_;                            // waiting for a request
  std::uint32_t told_events_ = 0;                       // bit: type told already, until its log page is read
  std::vector<std::pair<QueueId, abi::Sqe>> stuck_;     // never complete by themselves (an injected fault)
  Features features_;
  Clock::time_point last_sign_of_life_ = Clock::now();
};

}  // namespace kvdrive::nvme
