// SPDX-License-Identifier: Apache-2.0
#include "commands/features.hpp"

#include <algorithm>

namespace kvdrive::nvme {
namespace {

constexpr std::uint32_t kSave = 1u << 31;                 // CDW10 of Set Features
constexpr std::uint32_t kCurrent = 0, kCapabilities = 3;  // 1 default, 2 saved: the same
constexpr std::uint32_t kChangeable = 1u << 2;
constexpr std::uint32_t kExtendedHostId = 1;
constexpr std::uint32_t kThresholdKelvin = 343;

std::uint32_t default_value(std::uint32_t feature, std::uint16_t queues) {
  switch (feature) {
    case kFeatureTemperatureThreshold:
      return kThresholdKelvin;
    case kFeatureWriteCache:
      return 1;
    case kFeatureQueues:
      return (queues - 1u) * 0x10001u;
    default:
      return 0;
  }
}

bool changeable(std::uint32_t feature) {
  return feature != kFeatureWriteAtomicity && feature != kFeatureHostId && feature != kFeatureInterruptVector;
}

std::uint8_t feature_of(const abi::Sqe& command) { return static_cast<std::uint8_t>(command.cdw10); }

// Values that the drive can do something with.
bool acceptable(std::uint32_t feature, std::uint32_t value, std::uint16_t queues) {
  switch (feature) {
    case kFeaturePower:  // one power state
    case kFeatureCommandSetProfile:
      return value == 0;
    case kFeatureWriteCache:
      return value <= 1;
    case kFeatureQueues:
      return (value & 0xffff) != 0xffff && value >> 16 != 0xffff && queues > 0;
    default:
      return true;
  }
}

}  // namespace

Features::Features(std::array<std::uint8_t, 16> host_id, std::uint16_t queues) : host_id_(host_id), queues_(queues) {
  reset();
}

void Features::reset() {
  for (const std::uint32_t feature :
       {kFeatureArbitration, kFeaturePower, kFeatureTemperatureThreshold, kFeatureErrorRecovery, kFeatureWriteCache,
        kFeatureQueues, kFeatureInterruptCoalescing, kFeatureInterruptVector, kFeatureWriteAtomicity,
        kFeatureAsyncEvents, kFeatureTimestamp, kFeatureKeepAlive, kFeatureHostBehavior, kFeatureCommandSetProfile,
        kFeatureHostId}) {
    values_[feature] = default_value(feature, queues_);
  }
  host_behavior_ = {};
}

std::uint32_t Features::data_bytes(const abi::Sqe& command) {
  const bool get = command.opcode == kGetFeatures;
  if (get && (command.cdw10 >> 8 & 7) == kCapabilities) return 0;
  switch (feature_of(command)) {
    case kFeatureTimestamp:
      return 8;
    case kFeatureHostBehavior:
      return 512;
    case kFeatureHostId:
      return get ? (command.cdw11 & kExtendedHostId ? 16 : 8) : 0;  // Set is refused by its number alone
    default:
      return 0;
  }
}

std::uint64_t Features::timestamp() const {
  const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - timestamp_at_);
  return timestamp_ms_ + static_cast<std::uint64_t>(passed.count());
}

Reply Features::get(const abi::Sqe& command) const {
  const std::uint32_t feature = feature_of(command), select = command.cdw10 >> 8 & 7;
  const auto found = values_.find(feature);
  if (found == values_.end() || select > kCapabilities) return {.status = abi::kInvalidField};
  if (select == kCapabilities) return {.result = changeable(feature) ? kChangeable : 0};
  Reply reply{.result = select == kCurrent ? found->second : default_value(feature, queues_)};
  switch (feature) {
    case kFeatureTimestamp:  // 48 bits of ms, then where they come from
      reply.data = bytes_of((timestamp() & 0xffff'ffff'ffff) | (timestamp_set_ ? std::uint64_t{2} << 48 : 0));
      reply.data.resize(8);
      break;
    case kFeatureHostBehavior:
      reply.data.assign(host_behavior_.begin(), host_behavior_.end());
      break;
    case kFeatureHostId: {
      reply.data = bytes_of(host_id_);
      if (!(command.cdw11 & kExtendedHostId)) reply.data.resize(8);
      break;
    }
    default:
      break;
  }
  return reply;
}

Reply Features::set(const abi::Sqe& command, std::span<const std::byte> data) {
  const std::uint32_t feature = feature_of(command), value = command.cdw11;
  const auto found = values_.find(feature);
  if (found == values_.end()) return {.status = abi::kInvalidField};
  if (command.cdw10 & kSave) return {.status = kScFeatureNotSaveable};
  if (!changeable(feature)) return {.status = kScFeatureNotChangeable};
  if (!acceptable(feature, value, queues_)) return {.status = abi::kInvalidField};
  if (data.size() < data_bytes(command)) return {.status = abi::kDataLength};
  switch (feature) {
    case kFeatureQueues: {  // submission queues low, completion queues high, both 0's based
      const std::uint32_t most = queues_ - 1u;
      found->second = std::min(value & 0xffff, most) | std::min(value >> 16, most) << 16;
      return {.result = found->second};
    }
    case kFeatureTimestamp:
      timestamp_ms_ = read_as<std::uint64_t>(data) & 0xffff'ffff'ffff;
      timestamp_at_ = Clock::now();
      timestamp_set_ = true;
      return {};
    case kFeatureHostBehavior:
      std::copy_n(data.begin(), host_behavior_.size(), host_behavior_.begin());
      return {};
    default:
      found->second = value;
      return {};
  }
}

}  // namespace kvdrive::nvme
