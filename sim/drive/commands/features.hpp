// SPDX-License-Identifier: Apache-2.0
// The features of one controller, for Get and Set Features. Saved values belong to the drive: they hold for every
// controller after its next reset, and after the drive is opened again.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "commands/admin_context.hpp"
#include "commands/reply.hpp"
#include "commands/wire.hpp"
#include "storage/health.hpp"

namespace kvdrive::nvme {

class Features {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::array kKnown{kFeatureArbitration,
                                     kFeaturePower,
                                     kFeatureTemperatureThreshold,
                                     kFeatureErrorRecovery,
                                     kFeatureWriteCache,
                                     kFeatureQueues,
                                     kFeatureInterruptCoalescing,
                                     kFeatureInterruptVector,
                                     kFeatureWriteAtomicity,
                                     kFeatureAsyncEvents,
                                     kFeatureTimestamp,
                                     kFeatureKeepAlive,
                                     kFeatureHostBehavior,
                                     kFeatureCommandSetProfile,
                                     kFeatureKeyValue,
                                     kFeatureHostId};

  Features(Health& health, const ControllerOptions& options);

  Reply get(const abi::Sqe& command) const;
  Reply set(const abi::Sqe& command, std::span<const std::byte> data);
  // Bytes of data of a Get or Set Features command; 0 for features whose value fits into the completion.
  static std::uint32_t data_bytes(const abi::Sqe& command);
  void reset();

  std::uint32_t value(Feature feature) const { return values_.at(feature); }
  bool temperature_warning() const;  // the drive's temperature is beyond a threshold
  void set_keep_alive(std::uint32_t milliseconds) { values_[kFeatureKeepAlive] = milliseconds; }

 private:
  std::uint32_t default_value(std::uint32_t key) const;
  std::uint32_t saved_value(std::uint32_t key) const;
  std::uint64_t timestamp() const;  // ms since the epoch, counted from the host's last setting

  Health& health_;
  std::array<std::uint8_t, 16> host_id_;
  std::uint16_t queues_;
  bool fabrics_;
  std::map<std::uint32_t, std::uint32_t> values_;  // by feature; the lower temperature threshold has a key of its own
  std::array<std::byte, 512> host_behavior_{};
  std::uint64_t timestamp_ms_ = 0;
  bool timestamp_set_ = false;
  Clock::time_point timestamp_at_ = Clock::now();
};

}  // namespace kvdrive::nvme
