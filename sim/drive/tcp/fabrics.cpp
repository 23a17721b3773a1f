// SPDX-License-Identifier: Apache-2.0
// The Fabrics commands of a connection.
#include "tcp/fabrics.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "tcp/connection.hpp"

namespace kvdrive::tcp {
namespace {

// The position of an invalid field of Connect: its offset, and a flag that tells if it lies in the data.
std::uint64_t in_command(std::size_t offset) { return offset; }
std::uint64_t in_data(std::size_t offset) { return offset | std::uint64_t{1} << 16; }

// Byte offsets of Connect's fields in the command.
constexpr std::size_t kQueueField = 42, kSizeField = 44;
constexpr std::size_t kMaxNqnBytes = 223;

// Returns an empty string if the field holds no valid NQN.
std::string nqn_of(const char (&field)[256]) {
  const auto end = std::ranges::find(field, '\0');
  const std::string_view text(field, static_cast<std::size_t>(end - field));
  return text.size() <= kMaxNqnBytes && text.starts_with("nqn.") ? std::string(text) : std::string();
}

}  // namespace

void Connection::execute_fabrics(const abi::Sqe& command, ByteView data, std::uint32_t room) {
  const auto type = static_cast<std::uint8_t>(command.nsid);
  switch (type) {
    case kConnect:
      return connect(command, data);
    case kPropertyGet:
      return queue_ == 0 ? get_property(command) : complete(command, abi::kInvalidOpcode);
    case kPropertySet:
      return queue_ == 0 ? set_property(command) : complete(command, abi::kInvalidOpcode);
    case kAuthenticationSend:
      return authenticate(command, data);
    case kAuthenticationReceive:
      return answer_authentication(command, room);
    case kDisconnect:
      if (queue_ == 0) return complete(command, abi::kInvalidOpcode);
      complete(command, abi::kSuccess);
      end();
      return detach();
    default:
      return complete(command, abi::kInvalidOpcode);
  }
}

void Connection::connect(const abi::Sqe& command, ByteView data) {
  const auto request = read_as<ConnectData>(data);
  const auto format = static_cast<std::uint16_t>(command.cdw10);
  const auto queue = static_cast<std::uint16_t>(command.cdw10 >> 16);
  const std::uint32_t entries = (command.cdw11 & 0xffff) + 1;
  const auto attributes = static_cast<std::uint8_t>(command.cdw11 >> 16);
  const auto invalid = [&](std::uint64_t where) { complete(command, kConnectInvalidParameters, where); };

  if (format != 0) return complete(command, kIncompatibleFormat);
  if (entries < 2) return invalid(in_command(kSizeField));
  const std::string host = nqn_of(request.host_nqn), subsystem = nqn_of(request.subsystem_nqn);
  if (host.empty()) return invalid(in_data(offsetof(ConnectData, host_nqn)));
  const bool discovery = subsystem == kDiscoveryNqn;
  if (!discovery && subsystem != target_.nqn()) return invalid(in_data(offsetof(ConnectData, subsystem_nqn)));
  const auto access = target_.access(host);
  if (!access && !discovery) {
    target_.count([](TargetCounters& c) { ++c.refused_hosts; });
    return complete(command, kConnectInvalidHost);
  }
  if ((queue == 0) != (request.controller_id == kAnyController)) {
    return invalid(in_data(offsetof(ConnectData, controller_id)));
  }

  const auto association = queue == 0 ? target_.associate(discovery, host, std::to_array(request.host_id), local_)
                                      : (discovery ? nullptr : target_.find(request.controller_id));
  if (!association || association->host_nqn != host || association->host_id != std::to_array(request.host_id)) {
    return invalid(in_data(offsetof(ConnectData, controller_id)));
  }
  const nvme::Status status =
      association->with([&](auto& controller) { return controller.connect_queue(queue, entries); });
  if (status != abi::kSuccess) {
    if (queue == 0) target_.dissolve(association);
    return status == abi::kInvalidField ? invalid(in_command(kQueueField)) : complete(command, status);
  }
  association_ = association;
  association->queues[queue] = this;
  queue_ = queue;
  entries_ = entries;
  flow_control_ = (attributes & kNoFlowControl) == 0;
  if (queue == 0) association->with([&](auto& controller) { controller.set_keep_alive(command.cdw12); });
  std::uint64_t result = association->id();
  if (!discovery && access->secret) {
    authentication_.emplace(Authentication::Parties{host, target_.nqn(), *access->secret, access->controller_secret});
    authenticated_ = false;
    result |= kAuthenticationRequest;
  }
  if (authenticated_) held_.belong_to(association->buffers);
  complete(command, abi::kSuccess, result);
}

void Connection::get_property(const abi::Sqe& command) {
  const auto value = association_->with(
      [&](auto& controller) { return controller.property(command.cdw11, command.cdw10 & 7 ? 8 : 4); });
  complete(command, value ? abi::kSuccess : abi::kInvalidField, value.value_or(0));
}

void Connection::set_property(const abi::Sqe& command) {
  const auto association = association_;
  const bool was_ready = association->with([](auto& controller) { return controller.ready(); });
  const std::uint64_t value = std::uint64_t{command.cdw13} << 32 | command.cdw12;
  const nvme::Status status = association->with(
      [&](auto& controller) { return controller.set_property(command.cdw11, command.cdw10 & 7 ? 8 : 4, value); });
  // A reset deletes the I/O queues, so their connections end too.
  if (was_ready && !association->with([](auto& controller) { return controller.ready(); })) {
    for (auto it = association->queues.upper_bound(0); it != association->queues.end();) {
      it->second->leave();
      it = association->queues.erase(it);
    }
  }
  complete(command, status);
}

// ---- authentication ----

// Only now the host is the one that it says it is, and may use that host's part of the buffers.
void Connection::note_authentication() {
  if (authenticated_ || !authentication_->authenticated()) return;
  authenticated_ = true;
  if (association_) held_.belong_to(association_->buffers);
}

void Connection::authenticate(const abi::Sqe& command, ByteView data) {
  const std::uint32_t protocol = command.cdw10 >> 8;  // SECP, then SPSP0 and SPSP1, which must be 1
  if (!authentication_) return complete(command, nvme::kScCommandSequence);
  if (protocol != (std::uint32_t{kDhchapProtocol} << 16 | 0x0101)) return complete(command, abi::kInvalidField);
  if (!authentication_->receive(data)) return complete(command, abi::kInvalidField);
  note_authentication();
  complete(command, abi::kSuccess);
  if (!authentication_->failed()) return;
  target_.count([](TargetCounters& c) { ++c.failed_authentications; });
  end();
  detach();
}

void Connection::answer_authentication(const abi::Sqe& command, std::uint32_t room) {
  if (!authentication_) return complete(command, nvme::kScCommandSequence);
  if (command.cdw10 >> 8 != (std::uint32_t{kDhchapProtocol} << 16 | 0x0101) || room < command.cdw11) {
    return complete(command, abi::kInvalidField);
  }
  Bytes message = authentication_->next_message();
  if (message.empty()) return complete(command, nvme::kScCommandSequence);
  if (message.size() > command.cdw11) return complete(command, abi::kInvalidField);
  note_authentication();
  message.resize(command.cdw11);
  complete(command, abi::kSuccess, 0, std::move(message));
  if (!authentication_->failed()) return;
  target_.count([](TargetCounters& c) { ++c.failed_authentications; });
  end();
  detach();
}

}  // namespace kvdrive::tcp
