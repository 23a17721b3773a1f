// SPDX-License-Identifier: Apache-2.0
// The discovery controller tells a host where the drive's subsystem is. Its methods mirror those of nvme::Controller.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "nvme/controller.hpp"
#include "tcp/pdu.hpp"

namespace kvdrive::tcp {

inline constexpr const char* kDiscoveryNqn = "nqn.2014-08.org.nvmexpress.discovery";

// An address at which this target can be reached.
struct Address {
  std::string host;  // numeric address
  std::uint16_t port = 0;
  bool ipv6 = false;
};

class DiscoveryController {
 public:
  using Clock = nvme::Controller::Clock;

  // `subsystem_nqn` is empty for hosts that may not see the subsystem.
  DiscoveryController(std::uint16_t id, std::string subsystem_nqn, Address address);

  std::uint16_t id() const { return id_; }
  std::optional<std::uint64_t> property(std::uint32_t offset, std::uint32_t bytes) const;
  nvme::Status set_property(std::uint32_t offset, std::uint32_t bytes, std::uint64_t value);
  bool ready() const { return (csts_ & 1) != 0; }
  nvme::Status connect_queue(nvme::QueueId id, std::uint32_t entries);
  void disconnect_queue(nvme::QueueId) {}
  nvme::Transfer transfer(nvme::QueueId queue, const abi::Sqe& command) const;
  std::optional<nvme::Response> execute(nvme::QueueId queue, const abi::Sqe& command, const nvme::DataBuffer& data);
  nvme::Response refuse(nvme::QueueId queue, const abi::Sqe& command, nvme::Status status);
  void set_keep_alive(std::uint32_t milliseconds);
  std::uint32_t keep_alive() const { return keep_alive_ms_; }
  bool keep_alive_expired(Clock::time_point now) const;

 private:
  Bytes identify() const;
  Bytes log_page() const;
  nvme::Response complete(const abi::Sqe& command, nvme::Status status, std::uint64_t result = 0, Bytes data = {});

  std::uint16_t id_;
  std::string subsystem_nqn_;
  Address address_;
  std::uint32_t entries_ = 1, head_ = 0;
  std::uint32_t cc_ = 0, csts_ = 0;
  std::uint32_t keep_alive_ms_ = 0;
  Clock::time_point last_keep_alive_ = Clock::now();
  bool event_request_ = false;
};

}  // namespace kvdrive::tcp
