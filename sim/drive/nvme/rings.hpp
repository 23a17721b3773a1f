// SPDX-License-Identifier: Apache-2.0
// The controller's side of a ring segment: fetches commands, moves their data, posts completions.
//
// The host writes properties and doorbells as it would to a PCIe device; `poll` notices the changes. Contiguous data
// reach the drive without a copy. A host that changes them during the command can therefore spoil its own data, but
// harms nobody else.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "nvme/controller.hpp"
#include "nvme/ring_segment.hpp"

namespace kvdrive::nvme {

class Rings final : public QueueMemory {
 public:
  // `segment` must outlive the object.
  Rings(std::span<std::byte> segment, Subsystem& subsystem, ControllerOptions options);

  // Does all work that is due; returns false when there was none. One thread does it at a time, others wait.
  bool poll();
  // Like `poll`, but for one command of each queue. Returns false also if another thread is at work.
  bool poll_once();
  // Polls until `stop` is set; sleeps while there is nothing to do. After setting `stop`, call `wake_device`.
  void run(const std::atomic<bool>& stop);

  Controller& controller() { return controller_; }
  RingView view() const { return view_; }

 private:
  struct Sq {
    std::uint64_t address = 0;
    std::uint32_t entries = 0, head = 0;
    QueueId cq = 0;
  };
  struct Cq {
    std::uint64_t address = 0;
    std::uint32_t entries = 0, tail = 0;
    bool phase = true;
    std::deque<abi::Cqe> waiting{};  // completions that found the ring full
  };

  Status create_cq(QueueId id, std::uint32_t entries, std::uint64_t address) override;
  Status create_sq(QueueId id, std::uint32_t entries, std::uint64_t address, QueueId cq) override;
  void delete_sq(QueueId id) override;
  void delete_cq(QueueId id) override;

  bool holds(std::uint64_t address, std::uint64_t bytes) const;
  bool work(std::uint32_t burst);
  bool poll_properties();
  bool poll_sq(QueueId id, std::uint32_t burst);
  bool poll_waiting();
  void execute(QueueId id, const abi::Sqe& command);
  void post(QueueId sq, const abi::Cqe& cqe);
  bool place(Cq& cq, QueueId id, abi::Cqe cqe);
  bool backed_up(QueueId cq);

  RingView view_;
  std::mutex turn_;   // held by the thread that works for the drive
  std::mutex mutex_;  // guards queues and completions: other controllers' threads raise events
  std::map<QueueId, Cq> cqs_;
  std::map<QueueId, Sq> sqs_;
  std::vector<QueueId> order_;  // existing submission queues, in polling order
  std::vector<std::byte> gathered_;
  std::uint32_t cc_ = 0;
  bool posted_ = false;
  Controller controller_;
};

}  // namespace kvdrive::nvme
