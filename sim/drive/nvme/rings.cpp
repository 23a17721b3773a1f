// SPDX-License-Identifier: Apache-2.0
#include "nvme/rings.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>

#include "nvme/data_pointer.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::uint32_t kBurst = 32;  // commands of one queue before the next queue has its turn
constexpr int kIdlePolls = 64;        // polls without work before the drive sleeps
constexpr std::chrono::milliseconds kLongestSleep{100};

}  // namespace

Rings::Rings(std::span<std::byte> segment, Subsystem& subsystem, ControllerOptions options)
    : view_(segment),
      controller_(
          subsystem, std::move(options),
          [this](QueueId queue, Response response) {
            post(queue, response.cqe);
            view_.wake_host();  // may be called from any thread while `poll` sleeps
          },
          this) {
  view_.wide_property(kCap).store(controller_.property(kCap, 8).value_or(0));
  view_.property(kVs).store(static_cast<std::uint32_t>(controller_.property(kVs, 4).value_or(0)));
  view_.property(kCc).store(0);
  view_.property(kCsts).store(0);
}

bool Rings::holds(std::uint64_t address, std::uint64_t bytes) const {
  const std::uint64_t size = view_.bytes().size();
  return address >= kRingHeap && address % abi::kPageBytes == 0 && address <= size && bytes <= size - address;
}

Status Rings::create_cq(QueueId id, std::uint32_t entries, std::uint64_t address) {
  if (!holds(address, std::uint64_t{entries} * abi::kCqeBytes)) return kScBadPrpOffset;
  const std::lock_guard lock(mutex_);
  cqs_[id] = {.address = address, .entries = entries};
  view_.cq_head(id).store(0, std::memory_order_relaxed);
  return abi::kSuccess;
}

Status Rings::create_sq(QueueId id, std::uint32_t entries, std::uint64_t address, QueueId cq) {
  if (!holds(address, std::uint64_t{entries} * abi::kSqeBytes)) return kScBadPrpOffset;
  const std::lock_guard lock(mutex_);
  sqs_[id] = {.address = address, .entries = entries, .head = 0, .cq = cq};
  order_.push_back(id);
  view_.sq_tail(id).store(0, std::memory_order_relaxed);
  return abi::kSuccess;
}

void Rings::delete_sq(QueueId id) {
  const std::lock_guard lock(mutex_);
  sqs_.erase(id);
  std::erase(order_, id);
}

void Rings::delete_cq(QueueId id) {
  const std::lock_guard lock(mutex_);
  cqs_.erase(id);
}

bool Rings::poll() {
  const std::lock_guard turn(turn_);
  return work(kBurst);
}

bool Rings::poll_once() {
  const std::unique_lock turn(turn_, std::try_to_lock);
  return turn.owns_lock() && work(1);
}

bool Rings::work(std::uint32_t burst) {
  bool worked = poll_properties();
  worked |= poll_waiting();
  for (std::size_t i = 0; i < order_.size(); ++i) worked |= poll_sq(order_[i], burst);
  bool posted = false;
  {
    const std::lock_guard lock(mutex_);
    posted = std::exchange(posted_, false);
  }
  if (posted) view_.wake_host();
  return worked;
}

void Rings::run(const std::atomic<bool>& stop) {
  int idle = 0;
  while (!stop.load(std::memory_order_relaxed)) {
    if (poll()) {
      idle = 0;
      continue;
    }
    if (++idle < kIdlePolls) {
      std::this_thread::yield();
      continue;
    }
    const std::uint32_t seen = view_.device_event().load();
    view_.device_sleeps().store(1, std::memory_order_seq_cst);
    if (!poll() && !stop.load()) sleep_on(view_.device_event(), seen, kLongestSleep);
    view_.device_sleeps().store(0, std::memory_order_seq_cst);
    idle = 0;
  }
}

bool Rings::poll_properties() {
  const std::uint32_t cc = view_.property(kCc).load(std::memory_order_acquire);
  if (cc == cc_) return false;
  cc_ = cc;
  controller_.set_property(kAqa, 4, view_.property(kAqa).load());
  controller_.set_property(kAsq, 8, view_.wide_property(kAsq).load());
  controller_.set_property(kAcq, 8, view_.wide_property(kAcq).load());
  controller_.set_property(kCc, 4, cc);
  view_.property(kCsts).store(static_cast<std::uint32_t>(controller_.property(kCsts, 4).value_or(0)),
                              std::memory_order_release);
  const std::lock_guard lock(mutex_);
  posted_ = true;  // the host waits for a change of CSTS
  return true;
}

bool Rings::backed_up(QueueId cq) {
  const std::lock_guard lock(mutex_);
  const auto found = cqs_.find(cq);
  return found == cqs_.end() || !found->second.waiting.empty();
}

bool Rings::poll_sq(QueueId id, std::uint32_t burst) {
  for (std::uint32_t i = 0; i < burst; ++i) {
    const auto found = sqs_.find(id);
    if (found == sqs_.end()) return true;  // the command that was just executed deleted the queue
    Sq& sq = found->second;
    const std::uint32_t tail = view_.sq_tail(id).load(std::memory_order_acquire);
    // An impossible doorbell value is ignored until the host writes another one.
    if (tail == sq.head || tail >= sq.entries || backed_up(sq.cq)) return i > 0;
    abi::Sqe command;
    std::memcpy(&command, view_.bytes().data() + sq.address + std::uint64_t{sq.head} * sizeof command, sizeof command);
    sq.head = (sq.head + 1) % sq.entries;
    execute(id, command);
  }
  return true;
}

void Rings::execute(QueueId id, const abi::Sqe& command) {
  const Transfer transfer = controller_.transfer(id, command);
  DataPieces found;
  if (transfer.direction != Direction::kNone) {
    found = find_data(view_.bytes(), command, transfer.bytes.value_or(0));
    if (found.status != abi::kSuccess) return post(id, controller_.refuse(id, command, found.status).cqe);
  }
  DataBuffer data;
  if (transfer.direction == Direction::kToHost) {
    data.room = found.bytes;
  } else if (found.pieces.size() == 1) {
    data.in = found.pieces.front();
  } else if (found.pieces.size() > 1) {
    gathered_.resize(found.bytes);
    auto out = gathered_.begin();
    for (const auto& piece : found.pieces) out = std::ranges::copy(piece, out).out;
    data.in = gathered_;
  }
  const std::optional<Response> response = controller_.execute(id, command, data);
  if (!response) return;
  std::span<const std::byte> left = response->data;
  for (const auto& piece : found.pieces) {
    if (left.empty()) break;
    const std::size_t bytes = std::min(piece.size(), left.size());
    std::memcpy(piece.data(), left.data(), bytes);
    left = left.subspan(bytes);
  }
  post(id, response->cqe);
}

void Rings::post(QueueId sq, const abi::Cqe& cqe) {
  const std::lock_guard lock(mutex_);
  const auto found = sqs_.find(sq);
  if (found == sqs_.end()) return;
  const QueueId id = found->second.cq;
  const auto queue = cqs_.find(id);
  if (queue == cqs_.end()) return;
  posted_ = true;
  Cq& cq = queue->second;
  if (!cq.waiting.empty() || !place(cq, id, cqe)) cq.waiting.push_back(cqe);
}

// Returns false when the ring is full.
bool Rings::place(Cq& cq, QueueId id, abi::Cqe cqe) {
  const std::uint32_t next = (cq.tail + 1) % cq.entries;
  if (next == view_.cq_head(id).load(std::memory_order_acquire)) return false;
  std::byte* const at = view_.bytes().data() + cq.address + std::uint64_t{cq.tail} * sizeof cqe;
  cqe.status = static_cast<std::uint16_t>((cqe.status & ~1u) | (cq.phase ? 1u : 0u));
  const auto words = std::bit_cast<std::array<std::uint64_t, 2>>(cqe);
  std::memcpy(at, &words[0], sizeof words[0]);
  // The half with the phase bit is written last, so that the host never sees a partial entry.
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at + sizeof words[0])).store(words[1], std::memory_order_release);
  cq.tail = next;
  if (next == 0) cq.phase = !cq.phase;
  return true;
}

bool Rings::poll_waiting() {
  const std::lock_guard lock(mutex_);
  bool worked = false;
  for (auto& [id, cq] : cqs_) {
    while (!cq.waiting.empty() && place(cq, id, cq.waiting.front())) {
      cq.waiting.pop_front();
      posted_ = worked = true;
    }
  }
  return worked;
}

}  // namespace kvdrive::nvme
