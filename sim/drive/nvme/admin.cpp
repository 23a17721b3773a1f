// SPDX-License-Identifier: Apache-2.0
// The part of a controller that admin commands use: queues, features, asynchronous events.
#include <algorithm>
#include <variant>

#include "commands/subsystem.hpp"
#include "commands/table.hpp"
#include "nvme/controller.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::uint32_t kContiguous = 0x1;  // CDW11 of Create SQ and Create CQ
constexpr std::uint32_t kSmartEvent = 1;    // type of an asynchronous event
constexpr std::uint32_t kErrorEvent = 0;
constexpr std::uint32_t kCommandSetEvent = 6;
constexpr std::uint8_t kFuseMask = 0x3;
constexpr std::uint32_t kSave = 1u << 31;  // CDW10 of Set Features

// The asynchronous event of type SMART for a crossed temperature threshold, and the feature bit that enables it.
constexpr Event kTemperatureEvent = kSmartEvent | 0x01 << 8 | kLogSmart << 16;
constexpr std::uint32_t kTemperatureWarning = 0x2;

// Reading log page `page` acknowledges events of the returned type.
std::uint32_t event_type_of_log(std::uint32_t page) {
  return page == kLogSmart ? kSmartEvent : page == kLogSanitizeStatus ? kCommandSetEvent : kErrorEvent;
}

}  // namespace

std::optional<Response> Controller::execute_admin(const abi::Sqe& command, const DataBuffer& data) {
  const Command* const row = find_command(QueueKind::kAdmin, command);
  const auto* const handler = row ? std::get_if<AdminHandler>(&row->handler) : nullptr;
  std::optional<Reply> reply;
  if (!handler) {
    reply = unknown_command(QueueKind::kAdmin, command);
  } else if (command.flags & kFuseMask) {
    reply = Reply{.status = abi::kInvalidField, .location = kInFlags};
  } else if (row->checks_nsid && command.nsid > kMaxNsid && command.nsid != kNsidAll) {
    reply = Reply{.status = abi::kInvalidNamespace, .location = kInNsid};
  } else {
    reply = (*handler)(*this, {command, data});
  }
  if (!reply) return std::nullopt;
  return complete(0, command, std::move(*reply));
}

Reply Controller::get_feature(const Request& request) {
  const std::lock_guard lock(mutex_);
  return features_.get(request.command);
}

Reply Controller::set_feature(const Request& request) {
  const std::uint32_t feature = request.command.cdw10 & 0xff;
  Reply reply;
  bool crossed = false;
  {
    const std::lock_guard lock(mutex_);
    const bool before = features_.temperature_warning();
    reply = features_.set(request.command, request.data.in);
    if (reply.status != abi::kSuccess) return reply;
    crossed = features_.temperature_warning();
    if (before && feature != kFeatureAsyncEvents) crossed = false;  // the host knows already
  }
  if (crossed) raise(kTemperatureEvent, kTemperatureWarning);
  const bool durable = !(request.command.cdw10 & kSave) || subsystem_.drive().flush() == abi::kSuccess;
  return durable ? reply : Reply{.status = abi::kInternalError};
}

bool Controller::temperature_warning() {
  const std::lock_guard lock(mutex_);
  return features_.temperature_warning();
}

void Controller::acknowledge(std::uint32_t log_page) {
  const std::lock_guard lock(mutex_);
  told_events_ &= ~(1u << event_type_of_log(log_page));
}

Reply Controller::delete_sq(const abi::Sqe& command) {
  if (!memory_) return {.status = abi::kInvalidOpcode};
  const std::lock_guard lock(mutex_);
  const auto id = static_cast<QueueId>(command.cdw10);
  if (id == 0 || queues_.erase(id) == 0) return {.status = kScBadQueueId, .location = kInCdw10};
  std::erase_if(stuck_, [id](const auto& entry) { return entry.first == id; });
  memory_->delete_sq(id);
  return {};
}

Reply Controller::delete_cq(const abi::Sqe& command) {
  if (!memory_) return {.status = abi::kInvalidOpcode};
  const std::lock_guard lock(mutex_);
  const auto id = static_cast<QueueId>(command.cdw10);
  if (id == 0 || !completion_queues_.contains(id)) return {.status = kScBadQueueId, .location = kInCdw10};
  if (std::ranges::any_of(queues_, [id](const auto& entry) { return entry.second.cq == id; })) {
    return {.status = kScBadQueueDeletion};
  }
  completion_queues_.erase(id);
  memory_->delete_cq(id);
  return {};
}

Reply Controller::create_cq(const abi::Sqe& command) {
  if (!memory_) return {.status = abi::kInvalidOpcode};
  const std::lock_guard lock(mutex_);
  const auto id = static_cast<QueueId>(command.cdw10);
  const std::uint32_t entries = (command.cdw10 >> 16) + 1;
  if (id == 0 || id > options_.max_io_queues || completion_queues_.contains(id))
    return {.status = kScBadQueueId, .location = kInCdw10};
  if (entries < 2 || entries > options_.max_queue_entries) return {.status = kScBadQueueSize, .location = kInCdw10 + 2};
  if (!(command.cdw11 & kContiguous)) return {.status = abi::kInvalidField, .location = kInCdw11};
  const Status status = memory_->create_cq(id, entries, command.prp1);
  if (status == abi::kSuccess) completion_queues_[id] = entries;
  return {.status = status};
}

Reply Controller::create_sq(const abi::Sqe& command) {
  if (!memory_) return {.status = abi::kInvalidOpcode};
  const std::lock_guard lock(mutex_);
  const auto id = static_cast<QueueId>(command.cdw10);
  const auto cq = static_cast<QueueId>(command.cdw11 >> 16);
  const std::uint32_t entries = (command.cdw10 >> 16) + 1;
  if (id == 0 || id > options_.max_io_queues || queues_.contains(id))
    return {.status = kScBadQueueId, .location = kInCdw10};
  if (entries < 2 || entries > options_.max_queue_entries) return {.status = kScBadQueueSize, .location = kInCdw10 + 2};
  if (cq == 0 || !completion_queues_.contains(cq)) return {.status = kScBadCompletionQueue, .location = kInCdw11 + 2};
  if (!(command.cdw11 & kContiguous)) return {.status = abi::kInvalidField, .location = kInCdw11};
  const Status status = memory_->create_sq(id, entries, command.prp1, cq);
  if (status == abi::kSuccess) queues_[id] = {.entries = entries, .head = 0, .cq = cq};
  return {.status = status};
}

// CDW10 holds the submission queue and the command identifier. Bit 0 of the result is set when nothing was aborted.
Reply Controller::abort(const abi::Sqe& command) {
  const auto queue = static_cast<QueueId>(command.cdw10);
  const auto cid = static_cast<std::uint16_t>(command.cdw10 >> 16);
  std::optional<abi::Sqe> aborted;
  {
    const std::lock_guard lock(mutex_);
    const auto stuck = std::ranges::find_if(
        stuck_, [&](const auto& entry) { return entry.first == queue && entry.second.cid == cid; });
    const auto request = std::ranges::find(event_requests_, cid, &abi::Sqe::cid);
    if (stuck != stuck_.end()) {
      aborted = stuck->second;
      stuck_.erase(stuck);
    } else if (queue == 0 && request != event_requests_.end()) {
      aborted = *request;
      event_requests_.erase(request);
    }
  }
  if (!aborted) return {.result = 1};
  Response response = complete(queue, *aborted, {.status = kScAborted});
  response.cqe.sq_head = sq_head(queue);
  deliver_(queue, std::move(response));
  return {};
}

std::uint16_t Controller::sq_head(QueueId queue) const {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(queue);
  return found == queues_.end() ? 0 : static_cast<std::uint16_t>(found->second.head);
}

std::optional<Reply> Controller::wait_for_event(const abi::Sqe& command) {
  LateResponses late;
  {
    const std::lock_guard lock(mutex_);
    if (event_requests_.size() >= kAsyncEventLimit) return Reply{.status = kScAsyncEventLimit};
    event_requests_.push_back(command);
    match_events(late);
  }
  for (auto& [queue, response] : late) deliver_(queue, std::move(response));
  return std::nullopt;
}

void Controller::match_events(LateResponses& late) {
  for (auto event = events_.begin(); event != events_.end() && !event_requests_.empty();) {
    const std::uint32_t type = *event & 7;
    if (told_events_ & 1u << type) {
      ++event;
      continue;
    }
    told_events_ |= 1u << type;
    Response response = complete(0, event_requests_.front(), {.result = *event});
    const auto found = queues_.find(0);
    response.cqe.sq_head = static_cast<std::uint16_t>(found == queues_.end() ? 0 : found->second.head);
    late.emplace_back(0, std::move(response));
    event_requests_.pop_front();
    event = events_.erase(event);
  }
}

void Controller::raise(Event event, std::uint32_t enabled_by) {
  LateResponses late;
  {
    const std::lock_guard lock(mutex_);
    if (enabled_by != 0 && !(features_.value(kFeatureAsyncEvents) & enabled_by)) return;
    if (std::ranges::find(events_, event) == events_.end()) events_.push_back(event);
    match_events(late);
  }
  for (auto& [queue, response] : late) deliver_(queue, std::move(response));
}

}  // namespace kvdrive::nvme
