// SPDX-License-Identifier: Apache-2.0
// Features of one controller: values that Get and Set Features know. Nothing is saved over a reset.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "commands/reply.hpp"
#include "commands/wire.hpp"

namespace kvdrive::nvme {

class Features {
 public:
  using Clock = std::chrono::steady_clock;

  // `host_id`: that of the association. `queues`: I/O queues that may exist.
  Features(std::array<std::uint8_t, 16> host_id, std::uint16_t queues);

  Reply get(const abi::Sqe& command) const;
  Reply set(const abi::Sqe& command, std::span<const std::byte> data);
  // Bytes of data of a Get or Set Features command; 0 for features that fit the completion.
  static std::uint32_t data_bytes(const abi::Sqe& command);
  void reset();

  std::uint32_t value(Feature feature) const { return values_.at(feature); }
  void set_keep_alive(std::uint32_t milliseconds) { values_[kFeatureKeepAlive] = milliseconds; }

 private:
  std::uint64_t timestamp() const;  // ms since the epoch that the host set

  std::array<std::uint8_t, 16> host_id_;
  std::uint16_t queues_;
  std::map<std::uint32_t, std::uint32_t> values_;
  std::array<std::byte, 512> host_behavior_{};
  std::uint64_t timestamp_ms_ = 0;
  bool timestamp_set_ = false;
  Clock::time_point timestamp_at_ = Clock::now();
};

}  // namespace kvdrive::nvme
