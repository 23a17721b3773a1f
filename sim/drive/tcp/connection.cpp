// SPDX-License-Identifier: Apache-2.0
#include "tcp/connection.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "tcp/fabrics.hpp"

namespace kvdrive::tcp {
namespace {

// The SGL descriptor takes the place of PRP 1 and 2.
nvme::SglDescriptor sgl_of(const abi::Sqe& command) {
  return read_as<nvme::SglDescriptor>(std::as_bytes(std::span(&command, 1)).subspan(offsetof(abi::Sqe, prp1)));
}

std::uint8_t fabrics_type(const abi::Sqe& command) { return static_cast<std::uint8_t>(command.nsid); }

}  // namespace

Connection::Connection(Target& target, Address local, Clock::time_point now)
    : target_(target), local_(std::move(local)), held_(target.pool()), opened_(now), progress_(now) {
  target_.count([](TargetCounters& c) { ++c.connections; });
}

// NOLINTNEXTLINE(bugprone-exception-escape): it takes locks, and visits a variant that always has a value
Connection::~Connection() { detach(); }

// Frees the queue for another connection. Without its admin queue an association ends.
void Connection::detach() {
  const auto association = std::exchange(association_, nullptr);
  if (!association) return;
  if (queue_ == 0) {
    target_.dissolve(association);
  } else {
    association->queues.erase(queue_);
    association->with([&](auto& controller) { controller.disconnect_queue(queue_); });
  }
}

bool Connection::is_idle() const { return reader_.pending().empty() && incoming_.empty() && output_.empty(); }

void Connection::receive(ByteView bytes, Clock::time_point now) {
  if (ending_ || dropped_) return;
  if (is_idle()) progress_ = now;
  reader_.feed(bytes);
  proceed(now);
}

void Connection::proceed(Clock::time_point now) {
  while (!ending_ && !dropped_ && !is_full()) {
    const std::optional<Pdu> pdu = reader_.next();
    if (!pdu) break;
    progress_ = now;
    handle(*pdu);
  }
  const std::size_t waiting = waiting_.size();
  serve_waiting(now);
  if (waiting_.size() < waiting) progress_ = now;  // the host's time limit starts now
  const auto& fault = reader_.fault();
  if (fault && !ending_) {
    const ByteView pending = reader_.pending();
    const std::size_t header = pending.size() > 2 ? std::to_integer<std::size_t>(pending[2]) : 0;
    terminate(*fault, pending.first(std::min(pending.size(), header)));
  }
  reader_.keep();
  count_output();
}

void Connection::handle(const Pdu& pdu) {
  switch (pdu.common.type) {
    case kIcReq:
      return initialize(pdu);
    case kCapsuleCmd:
      return take_command(pdu);
    case kH2CData:
      return take_data(pdu);
    default:  // kH2CTermReq: the reader lets no other type through
      dropped_ = true;
  }
}

void Connection::initialize(const Pdu& pdu) {
  const auto request = read_as<InitializeConnection>(pdu.header);
  const auto unsupported = [&](std::size_t field) {
    terminate({FatalError::kUnsupportedParameter, static_cast<std::uint32_t>(field)}, pdu.header);
  };
  if (request.format != 0) return unsupported(offsetof(InitializeConnection, format));
  if (request.alignment > kMaxDataAlignment) {
    return terminate({FatalError::kInvalidHeaderField, offsetof(InitializeConnection, alignment)}, pdu.header);
  }
  if (request.digests > 3) return unsupported(offsetof(InitializeConnection, digests));
  const Digests digests{(request.digests & 1) != 0, (request.digests & 2) != 0};
  send(PduWriter::initialize_response(digests));
  reader_.start(digests);
  writer_ = PduWriter(digests, request.alignment);
}

// ---- commands and their data ----

Connection::Expected Connection::expected(const abi::Sqe& command) const {
  if (command.opcode != nvme::kFabrics) {
    const auto transfer = association_->with([&](auto& controller) { return controller.transfer(queue_, command); });
    return {transfer.direction, transfer.bytes};
  }
  if (fabrics_type(command) == kConnect) return {nvme::Direction::kToController, sizeof(ConnectData)};
  if (fabrics_type(command) == kAuthenticationSend) return {nvme::Direction::kToController, command.cdw11};
  if (fabrics_type(command) == kAuthenticationReceive) return {nvme::Direction::kToHost, command.cdw11};
  return {};
}

nvme::Status Connection::check_order(const abi::Sqe& command) const {
  const bool fabrics = command.opcode == nvme::kFabrics;
  if ((fabrics && fabrics_type(command) == kConnect) != !association_) return nvme::kScCommandSequence;
  if (association_ && !authenticated_ &&
      !(fabrics && (fabrics_type(command) == kAuthenticationSend || fabrics_type(command) == kAuthenticationReceive))) {
    return kAuthenticationRequired;
  }
  if (command.flags >> 6 != 1) return abi::kInvalidField;  // PSDT must say SGL
  const auto same = [&](const Incoming& other) { return other.command.cid == command.cid; };
  const bool taken =
      std::ranges::any_of(waiting_, [&](const Waiting& other) { return other.command.cid == command.cid; }) ||
      std::ranges::any_of(incoming_, [&](const auto& entry) { return same(entry.second); });
  if (taken) return nvme::kScInvalidCommandId;
  const bool ready = fabrics || association_->with([](auto& controller) { return controller.ready(); });
  return ready ? nvme::Status{abi::kSuccess} : nvme::Status{nvme::kScCommandSequence};
}

Connection::DataPointer Connection::locate(const abi::Sqe& command, nvme::Direction direction,
                                           std::size_t capsule_bytes) const {
  const nvme::SglDescriptor sgl = sgl_of(command);
  if (direction == nvme::Direction::kNone) return {};
  if (sgl.length > target_.options().max_transfer_bytes) return {abi::kInvalidField};
  if (sgl.kind == kSglTransport) return {abi::kSuccess, sgl.length};
  if (sgl.kind != kSglInCapsule || direction != nvme::Direction::kToController) return {nvme::kScBadSglType};
  if (sgl.address > capsule_bytes) return {kBadSglOffset};
  if (sgl.length > capsule_bytes - sgl.address) return {abi::kDataLength};
  return {abi::kSuccess, sgl.length, static_cast<std::uint32_t>(sgl.address)};
}

void Connection::take_command(const Pdu& pdu) {
  const abi::Sqe command = read_as<CapsuleCmd>(pdu.header).command;
  target_.count([&](TargetCounters& c) {
    ++c.commands;
    c.in_capsule += !pdu.data.empty();
    c.data_digest_errors += pdu.data_damaged;
  });
  if (const nvme::Status status = check_order(command); status != abi::kSuccess) return complete(command, status);
  if (pdu.data_damaged) return complete(command, kTransientTransportError, 0, {}, true);

  const Expected expects = expected(command);
  const DataPointer pointer = locate(command, expects.direction, pdu.data.size());
  if (pointer.status != abi::kSuccess) return complete(command, pointer.status);
  const bool to_controller = expects.direction == nvme::Direction::kToController;
  if (to_controller && pointer.length != expects.bytes.value_or(pointer.length))
    return complete(command, abi::kDataLength);
  if (pointer.capsule_offset) return execute(command, pdu.data.subspan(*pointer.capsule_offset, pointer.length), 0);
  if (pointer.length == 0) return execute(command, {}, 0);

  const Waiting waiting{command, expects.direction, pointer.length};
  if (!to_controller && waiting_.empty() && may_hold(waiting) && held_.take(pointer.length)) return answer(waiting);
  if (incoming_.size() + waiting_.size() >= std::max(entries_, 1u)) {
    return terminate({FatalError::kLimitExceeded}, pdu.header);  // more outstanding commands than queue entries
  }
  waiting_.push_back(waiting);
}

// A connection may use a quarter of the pool for incoming data, and as much as its output limit for answers. Otherwise
// it takes no place in the line, so that others come before its next command.
bool Connection::may_hold(const Waiting& command) const {
  if (command.direction == nvme::Direction::kToHost) return !is_full();
  return incoming_.empty() || incoming_bytes_ + command.length <= target_.pool().limit_bytes() / 4;
}

void Connection::serve_waiting(Clock::time_point now) {
  while (!waiting_.empty() && !ending_ && !dropped_) {
    const Waiting next = waiting_.front();
    if (!may_hold(next)) return held_.leave_line();
    if (!held_.take(next.length)) return;
    waiting_.pop_front();
    if (next.direction == nvme::Direction::kToController) {
      request_data(next, now);
    } else {
      answer(next);
    }
  }
}

// Precondition of both: `held_` has taken the command's bytes.
void Connection::request_data(const Waiting& waiting, Clock::time_point now) {
  while (incoming_.contains(next_tag_)) ++next_tag_;
  incoming_bytes_ += waiting.length;
  const std::chrono::milliseconds transfer(incoming_bytes_ * 1000 / kLeastRate);
  incoming_.emplace(next_tag_, Incoming{.command = waiting.command,
                                        .length = waiting.length,
                                        .held = BufferPool::Lease(held_, waiting.length),
                                        .due = now + target_.options().data_timeout + transfer});
  send(writer_.ready_to_transfer(waiting.command.cid, next_tag_++, waiting.length));
  target_.count([](TargetCounters& c) { ++c.ready_to_transfer; });
}

void Connection::answer(const Waiting& waiting) {
  const std::uint64_t before = output_bytes_;
  answer_bytes_ += waiting.length;
  execute(waiting.command, {}, waiting.length);
  // The answer may be shorter than its room.
  const std::uint64_t spare = waiting.length - std::min<std::uint64_t>(waiting.length, output_bytes_ - before);
  answer_bytes_ -= spare;
  held_.give(spare);
}

void Connection::take_data(const Pdu& pdu) {
  const auto header = read_as<DataHeader>(pdu.header);
  const auto invalid = [&](std::size_t field) {
    terminate({FatalError::kInvalidHeaderField, static_cast<std::uint32_t>(field)}, pdu.header);
  };
  const auto found = incoming_.find(header.tag);
  if (found == incoming_.end()) return invalid(offsetof(DataHeader, tag));
  Incoming& incoming = found->second;
  if (header.cid != incoming.command.cid) return invalid(offsetof(DataHeader, cid));
  if (header.length != pdu.data.size()) return invalid(offsetof(DataHeader, length));
  if (header.offset != incoming.received || header.length > incoming.length - incoming.received) {
    return terminate({FatalError::kOutOfRange, offsetof(DataHeader, offset)}, pdu.header);
  }
  const bool last = header.offset + header.length == incoming.length;
  if (last != ((pdu.common.flags & kLastPdu) != 0)) return invalid(offsetof(CommonHeader, flags));
  if (!incoming.data) incoming.data = std::make_unique_for_overwrite<std::byte[]>(incoming.length);
  std::ranges::copy(pdu.data, incoming.data.get() + header.offset);
  incoming.received += header.length;
  incoming.damaged |= pdu.data_damaged;
  if (pdu.data_damaged) target_.count([](TargetCounters& c) { ++c.data_digest_errors; });
  if (!last) return;

  const Incoming whole = std::move(incoming);
  incoming_.erase(found);
  incoming_bytes_ -= whole.length;
  if (whole.damaged) {
    complete(whole.command, kTransientTransportError, 0, {}, true);
  } else {
    execute(whole.command, {whole.data.get(), whole.length}, 0);
  }
}

void Connection::execute(const abi::Sqe& command, ByteView data, std::uint32_t room) {
  if (command.opcode == nvme::kFabrics) return execute_fabrics(command, data, room);
  const bool may_fail = queue_ != 0;
  if (may_fail && target_.take(TransportFault::kDropConnection)) {
    dropped_ = true;
    return;
  }
  if (may_fail && target_.take(TransportFault::kNotReady)) {
    return complete(command, kNamespaceNotReady, 0, {}, true);
  }
  // A command may end the association by a reset. This reference keeps the controller alive until the command is done.
  const auto association = association_;
  const auto response =
      association->with([&](auto& controller) { return controller.execute(queue_, command, {data, room}); });
  if (!response || (may_fail && target_.take(TransportFault::kLoseCompletion))) return;
  respond(*response);
}

// ---- answers ----

void Connection::respond(const nvme::Response& response) {
  const std::size_t size = response.data.size();
  for (std::size_t offset = 0; offset < size; offset += kMaxC2HDataBytes) {
    const auto length = static_cast<std::uint32_t>(std::min<std::size_t>(kMaxC2HDataBytes, size - offset));
    const bool corrupt = queue_ != 0 && target_.take(TransportFault::kCorruptDigest);
    send(writer_.data(response.cqe.cid, response.data, static_cast<std::uint32_t>(offset), length, corrupt));
  }
  abi::Cqe completion = response.cqe;
  completion.sq_id = 0;  // reserved in a capsule
  if (!flow_control_) completion.sq_head = 0xffff;
  send(writer_.response(completion));
}

void Connection::complete(const abi::Sqe& command, nvme::Status status, std::uint64_t result, Bytes data, bool retry) {
  nvme::Response response;
  if (association_) {
    response = association_->with([&](auto& controller) { return controller.refuse(queue_, command, status); });
  } else {
    response.cqe.cid = command.cid;
    response.cqe.status = static_cast<std::uint16_t>(status << abi::kCqeStatusShift | abi::kCqeDoNotRetry);
  }
  response.cqe.result = result;
  response.data = std::move(data);
  if (retry) response.cqe.status &= static_cast<std::uint16_t>(~abi::kCqeDoNotRetry);
  respond(response);
}

void Connection::deliver(const nvme::Response& response) {
  if (!ending_ && !dropped_) respond(response);
}

void Connection::send(Bytes pdu) {
  output_bytes_ += pdu.size();
  if (!output_.empty() && output_.back().size() + pdu.size() <= kSmallPdu) {
    output_.back().insert(output_.back().end(), pdu.begin(), pdu.end());
  } else {
    output_.push_back(std::move(pdu));
  }
}

void Connection::sent(std::size_t bytes, Clock::time_point now) {
  progress_ = now;
  output_bytes_ -= bytes;
  output_begin_ += bytes;
  while (!output_.empty() && output_begin_ >= output_.front().size()) {
    output_begin_ -= output_.front().size();
    output_.pop_front();
  }
  if (const std::uint64_t left = std::min(answer_bytes_, output_bytes_); left < answer_bytes_) {
    held_.give(answer_bytes_ - left);
    answer_bytes_ = left;
  }
  count_output();
}

// Headers, completions and half a PDU come without asking.
void Connection::count_output() { held_.set_unasked(output_bytes_ - answer_bytes_ + reader_.pending().size()); }

// ---- the end ----

void Connection::terminate(Fault fault, ByteView header) {
  target_.count([](TargetCounters& c) { ++c.terminated; });
  send(PduWriter::termination(fault.error, fault.information, header));
  end();
  detach();
}

void Connection::leave() {
  association_ = nullptr;
  end();
}

void Connection::end() {
  ending_ = true;
  waiting_.clear();
  incoming_.clear();
  incoming_bytes_ = 0;
  held_.leave_line();
}

void Connection::check_time(Clock::time_point now) {
  const TargetOptions& options = target_.options();
  const bool stalled = now - progress_ > options.progress_timeout;
  const bool strange = (!association_ && now - opened_ > options.connect_timeout) ||
                       (!authenticated_ && now - opened_ > options.progress_timeout);
  const bool overdue = std::ranges::any_of(incoming_, [&](const auto& entry) { return now > entry.second.due; });
  const bool late = ending_ ? stalled && !output_.empty() : strange || overdue || (stalled && !is_idle());
  if (!late || dropped_) return;
  target_.count([](TargetCounters& c) { ++c.timeouts; });
  dropped_ = true;
}

void Connection::excuse(Clock::duration time) {
  for (auto& [tag, incoming] : incoming_) incoming.due += time;
}

}  // namespace kvdrive::tcp
