// SPDX-License-Identifier: Apache-2.0
// The host's side of a ring segment: a driver with an admin queue and one or more I/O queue pairs.
//
// Every method may be called from several threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "commands/reply.hpp"
#include "nvme/heap.hpp"
#include "nvme/ring_segment.hpp"

namespace kvdrive::nvme {

// Thrown when the drive does not answer, or its answer makes no sense.
struct RingError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct HostOptions {
  std::uint16_t io_queues = 1;
  std::uint32_t entries = 256;
  bool prp = false;  // data by PRP lists instead of one SGL descriptor
  std::chrono::milliseconds timeout{60'000};
  std::function<bool()> alive{};  // true if the drive is still there; absent: assume so
};

struct HostCompletion {
  abi::Cqe cqe{};
  std::vector<std::byte> data{};
};

class RingHost {
 public:
  using Ticket = std::uint32_t;  // queue << 16 | command identifier

  // Lets a drive of this process work in the calling thread. Returns false if there is nothing to do, or if another
  // thread works for the drive.
  using PollDevice = std::function<bool()>;

  // Resets the drive's controller, enables it and creates the queues. `poll_device` is called by `execute`, and in
  // every wait if the drive has no thread of its own (`threaded` false). Throws RingError.
  RingHost(std::span<std::byte> segment, HostOptions options, PollDevice poll_device = {}, bool threaded = true);
  // Shuts the controller down, which makes everything durable, if the drive answers.
  ~RingHost();
  RingHost(const RingHost&) = delete;
  RingHost& operator=(const RingHost&) = delete;

  // Puts a command on queue 0 (admin) or 1 to io_queues, and fills in its identifier and data pointer. `room` is the
  // largest number of bytes that may come back. Blocks while the queue or the segment is full. Throws RingError, and
  // std::length_error when the data can never fit.
  Ticket submit(std::uint16_t queue, abi::Sqe entry, std::span<const std::byte> data, std::uint64_t room);
  // Blocks until the command has completed. Call it once per ticket. Throws RingError after the timeout; the command
  // then stays outstanding.
  HostCompletion wait(Ticket ticket);
  bool done(Ticket ticket);
  // `submit`, then `wait`. The calling thread does the work of a drive of this process, unless another one is at it:
  // waking two threads takes longer than many commands.
  HostCompletion execute(std::uint16_t queue, const abi::Sqe& entry, std::span<const std::byte> data,
                         std::uint64_t room) {
    return finish(put(queue, entry, data, room), true);
  }
  // Submits `count` copies of a command without data, as many at a time as the queue holds, and waits for all.
  // Precondition: no other thread uses the queue meanwhile.
  void repeat(std::uint16_t queue, const abi::Sqe& entry, std::uint64_t count);

  std::uint16_t io_queues() const { return options_.io_queues; }
  std::uint64_t capabilities() const { return view_.wide_property(kCap).load(); }

 private:
  struct Command {
    bool used = false, completed = false;
    std::uint64_t room = 0;
    Heap::Block buffer{}, list{};
    abi::Cqe cqe{};
  };
  struct Queue {
    std::uint64_t sq = 0, cq = 0;
    std::uint32_t entries = 0;
    std::uint32_t tail = 0, sq_head = 0, cq_head = 0;
    bool phase = true;
    std::vector<Command> commands{};
    std::vector<std::uint16_t> free{};  // identifiers
  };

  using Deadline = std::chrono::steady_clock::time_point;

  Ticket put(std::uint16_t queue, abi::Sqe entry, std::span<const std::byte> data, std::uint64_t room);
  HostCompletion finish(Ticket ticket, bool helps);
  void write_cc(std::uint32_t value, std::uint32_t mask, std::uint32_t expected);
  void add_queue(std::uint16_t id, std::uint32_t entries);
  void create_io_queue(std::uint16_t id);
  void point(abi::Sqe& entry, Command& command, std::uint64_t bytes);
  bool full(const Queue& queue) const;
  bool reap();
  // Lets the drive work until `ready` returns true or the deadline passes. Returns false after the deadline. Holds the
  // lock on return. `helps`: this thread works for the drive as long as there is something to do.
  template <typename Ready>
  bool wait_until(std::unique_lock<std::mutex>& lock, Deadline deadline, Ready ready, bool helps = false);
  bool poll_device(std::unique_lock<std::mutex>& lock);
  void release(Command& command);

  RingView view_;
  const HostOptions options_;
  const PollDevice poll_device_;
  const bool threaded_;
  std::mutex mutex_;
  Heap heap_;
  std::vector<Queue> queues_;
};

}  // namespace kvdrive::nvme
