// SPDX-License-Identifier: Apache-2.0
// A controller's properties, its reset and shutdown, its queues, and the execution of a command.
#include "nvme/controller.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "commands/subsystem.hpp"
#include "commands/table.hpp"

namespace kvdrive::nvme {
namespace {

// Fields of the properties CC and CSTS.
constexpr std::uint32_t kEnable = 0x1, kReady = 0x1, kFatal = 0x2;
constexpr std::uint32_t kShutdownMask = 0xc000, kShutdownComplete = 0x8, kShutdownStatusMask = 0xc;
constexpr std::uint32_t kPageSizeMask = 0x780, kCommandSetMask = 0x70;
constexpr std::uint32_t kAllCommandSets = 0x60;  // CC.CSS: all command sets of the drive

// Builds CAP: the number of queue entries (0's based), contiguous queues only, time to become ready in units of 500 ms,
// the NVM command set (bit 37) and the selectable command sets (bit 43), pages of 4 KiB.
std::uint64_t capabilities(const ControllerOptions& options) {
  return (options.max_queue_entries - 1u) | std::uint64_t{1} << 16 | std::uint64_t{20} << 24 | std::uint64_t{1} << 37 |
         std::uint64_t{1} << 43;
}

ControllerOptions checked(ControllerOptions options) {
  if (options.max_queue_entries < 2 || options.max_io_queues < 1) {
    throw std::runtime_error("a controller has at least one I/O queue of two entries");
  }
  if (options.max_transfer_bytes != 0 &&
      (options.max_transfer_bytes < abi::kPageBytes || !std::has_single_bit(options.max_transfer_bytes))) {
    throw std::runtime_error("the longest transfer is 4096 bytes times a power of two");
  }
  return options;
}

}  // namespace

Controller::Controller(Subsystem& subsystem, ControllerOptions options, Deliver deliver, QueueMemory* memory)
    : subsystem_(subsystem),
      options_(checked(std::move(options))),
      deliver_(std::move(deliver)),
      memory_(memory),
      features_(subsystem.drive().health(), options_) {
  id_ = subsystem_.attach(this);
}

Controller::~Controller() { subsystem_.detach(id_); }

std::optional<std::uint64_t> Controller::property(std::uint32_t offset, std::uint32_t bytes) const {
  const std::lock_guard lock(mutex_);
  const bool wide = offset == kCap || offset == kAsq || offset == kAcq;
  if (bytes != (wide ? 8u : 4u)) return std::nullopt;
  switch (offset) {
    case kCap:
      return capabilities(options_);
    case kVs:
      return kVersion21;
    case kIntms:
    case kIntmc:
    case kNssr:
      return 0;
    case kCc:
      return cc_;
    case kCsts:
      return csts_;
    case kAqa:
      return aqa_;
    case kAsq:
      return asq_;
    case kAcq:
      return acq_;
    default:
      return std::nullopt;
  }
}

Status Controller::set_property(std::uint32_t offset, std::uint32_t bytes, std::uint64_t value) {
  const std::lock_guard lock(mutex_);
  const bool wide = offset == kAsq || offset == kAcq;
  if (bytes != (wide ? 8u : 4u)) return abi::kInvalidField;
  const auto word = static_cast<std::uint32_t>(value);
  switch (offset) {
    case kCc: {
      const std::uint32_t before = cc_;
      cc_ = word;
      if (!(before & kEnable) && word & kEnable) enable();
      if (before & kEnable && !(word & kEnable)) reset();
      if (!(before & kShutdownMask) && word & kShutdownMask) shut_down();
      return abi::kSuccess;
    }
    case kAqa:
      aqa_ = word;
      return abi::kSuccess;
    case kAsq:
      asq_ = value;
      return abi::kSuccess;
    case kAcq:
      acq_ = value;
      return abi::kSuccess;
    case kIntms:
    case kIntmc:
    case kNssr:  // there are no interrupts and there is no subsystem reset
      return abi::kSuccess;
    default:
      return abi::kInvalidField;
  }
}

bool Controller::ready() const {
  const std::lock_guard lock(mutex_);
  return csts_ & kReady;
}

void Controller::enable() {
  const std::uint32_t sets = cc_ & kCommandSetMask;
  bool fine = (sets == 0 || sets == kAllCommandSets) && (cc_ & kPageSizeMask) == 0;
  if (memory_ && fine) {
    const std::uint32_t sq_entries = (aqa_ & 0xfff) + 1, cq_entries = (aqa_ >> 16 & 0xfff) + 1;
    fine = sq_entries >= 2 && cq_entries >= 2 && memory_->create_cq(0, cq_entries, acq_) == abi::kSuccess &&
           memory_->create_sq(0, sq_entries, asq_, 0) == abi::kSuccess;
    queues_[0] = {.entries = sq_entries};
    completion_queues_[0] = cq_entries;
  }
  csts_ = fine ? kReady : kFatal;
}

void Controller::reset() {
  if (memory_) {
    for (const auto& [id, queue] : queues_) memory_->delete_sq(id);
    for (const auto& [id, entries] : completion_queues_) memory_->delete_cq(id);
    queues_.clear();
    completion_queues_.clear();
  } else {  // the connection of the admin queue stays
    std::erase_if(queues_, [](const auto& entry) { return entry.first != 0; });
  }
  event_requests_.clear();
  events_.clear();
  told_events_ = 0;
  stuck_.clear();
  subsystem_.drive().abandon(id_);
  const std::uint32_t keep_alive = features_.value(kFeatureKeepAlive);
  features_.reset();
  if (options_.fabrics) features_.set_keep_alive(keep_alive);
  csts_ = 0;
}

void Controller::shut_down() {
  const bool durable = subsystem_.drive().flush() == abi::kSuccess;
  csts_ = (csts_ & ~kShutdownStatusMask) | kShutdownComplete | (durable ? 0 : kFatal);
}

Status Controller::connect_queue(QueueId id, std::uint32_t entries) {
  const std::lock_guard lock(mutex_);
  if (id > options_.max_io_queues || queues_.contains(id)) return abi::kInvalidField;
  if (entries < 2 || entries > options_.max_queue_entries) return abi::kInvalidField;
  if (id != 0 && !(csts_ & kReady)) return kScCommandSequence;
  queues_[id] = {.entries = entries};
  return abi::kSuccess;
}

void Controller::disconnect_queue(QueueId id) {
  const std::lock_guard lock(mutex_);
  queues_.erase(id);
  std::erase_if(stuck_, [id](const auto& entry) { return entry.first == id; });
  if (id == 0) event_requests_.clear();
}

Transfer Controller::transfer(QueueId queue, const abi::Sqe& command) const {
  return transfer_of(queue == 0 ? QueueKind::kAdmin : QueueKind::kIo, command, subsystem_.drive());
}

Response Controller::complete(QueueId queue, const abi::Sqe& command, Reply&& reply) {
  const std::uint16_t status = status_word(reply.status);
  if (reply.status != abi::kSuccess) subsystem_.record_error(queue, command, status, reply);
  Response response{.cqe = {.result = reply.result, .sq_head = 0, .sq_id = queue, .cid = command.cid, .status = status},
                    .data = std::move(reply.data)};
  return response;
}

std::optional<Response> Controller::execute(QueueId queue, const abi::Sqe& command, const DataBuffer& data) {
  std::uint32_t head = 0;
  {
    const std::lock_guard lock(mutex_);
    last_sign_of_life_ = Clock::now();
    const auto found = queues_.find(queue);
    if (found == queues_.end() || !(csts_ & kReady)) return std::nullopt;
    Queue& sq = found->second;
    head = sq.head = (sq.head + 1) % sq.entries;
  }
  std::optional<Response> response = queue == 0 ? execute_admin(command, data) : execute_io(queue, command, data);
  if (response) response->cqe.sq_head = static_cast<std::uint16_t>(head);
  return response;
}

Response Controller::refuse(QueueId queue, const abi::Sqe& command, Status status) {
  Response response = complete(queue, command, {.status = status});
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(queue);
  if (found == queues_.end()) return response;
  Queue& sq = found->second;
  response.cqe.sq_head = static_cast<std::uint16_t>(sq.head = (sq.head + 1) % sq.entries);
  return response;
}

std::optional<Response> Controller::execute_io(QueueId queue, const abi::Sqe& command, const DataBuffer& data) {
  Drive& drive = subsystem_.drive();
  if (drive.strikes(FaultKind::kCommandTimeout)) {
    const std::lock_guard lock(mutex_);
    stuck_.emplace_back(queue, command);
    return std::nullopt;
  }
  bool write_cache = false;
  {
    const std::lock_guard lock(mutex_);
    write_cache = features_.value(kFeatureWriteCache) != 0;
  }
  Reply reply = subsystem_.execute({command, data, queue_track(id_, queue)}, write_cache);
  if (drive.strikes(FaultKind::kLostCompletion)) {
    const std::lock_guard lock(mutex_);
    stuck_.emplace_back(queue, command);
    return std::nullopt;
  }
  return complete(queue, command, std::move(reply));
}

void Controller::set_keep_alive(std::uint32_t milliseconds) {
  const std::lock_guard lock(mutex_);
  features_.set_keep_alive(milliseconds);
  last_sign_of_life_ = Clock::now();
}

std::uint32_t Controller::keep_alive() const {
  const std::lock_guard lock(mutex_);
  return features_.value(kFeatureKeepAlive);
}

bool Controller::keep_alive_expired(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  const std::uint32_t milliseconds = features_.value(kFeatureKeepAlive);
  return milliseconds > 0 && now - last_sign_of_life_ > std::chrono::milliseconds(milliseconds);
}

}  // namespace kvdrive::nvme
