// SPDX-License-Identifier: Apache-2.0
#include "commands/features.hpp"

#include <algorithm>

namespace kvdrive::nvme {
namespace {

constexpr std::uint32_t kSave = 1u << 31;  // CDW10 of Set Features
// CDW10 of Get Features: which value. The one between default and capabilities is the saved value.
constexpr std::uint32_t kCurrent = 0, kDefault = 1, kCapabilities = 3;
constexpr std::uint32_t kSaveable = 1u << 0, kChangeable = 1u << 2;
constexpr std::uint32_t kExtendedHostId = 1;
// CDW11 of the temperature threshold: kelvin, the sensor (0: the whole drive, Fh: all sensors), over or under.
constexpr std::uint32_t kAllSensors = 0xf, kUnder = 1;
constexpr std::uint32_t kUnderThreshold = kFeatureTemperatureThreshold | 0x100;  // its key in the map of values

bool changeable(std::uint32_t feature) {
  return feature != kFeatureWriteAtomicity && feature != kFeatureHostId && feature != kFeatureInterruptVector;
}

bool saveable(std::uint32_t feature) {
  return feature == kFeatureArbitration || feature == kFeatureTemperatureThreshold ||
         feature == kFeatureErrorRecovery || feature == kFeatureWriteCache || feature == kFeatureAsyncEvents ||
         feature == kFeatureKeyValue;
}

// True for features of namespace 4. Their values belong to the drive, for all controllers, and are always saved.
bool of_namespace(std::uint32_t feature) { return feature == kFeatureKeyValue; }

// The key of a feature's value. Empty for the threshold of a temperature that the drive does not measure.
std::optional<std::uint32_t> saved_key(std::uint32_t feature, std::uint32_t cdw11) {
  if (feature != kFeatureTemperatureThreshold) return feature;
  const std::uint32_t sensor = cdw11 >> 16 & 0xf, side = cdw11 >> 20 & 3;
  if ((sensor != 0 && sensor != kAllSensors) || side > kUnder) return std::nullopt;
  return side == kUnder ? kUnderThreshold : feature;
}

std::uint8_t feature_of(const abi::Sqe& command) { return static_cast<std::uint8_t>(command.cdw10); }

// True if the drive supports the value.
bool acceptable(std::uint32_t feature, std::uint32_t value, std::uint16_t queues) {
  switch (feature) {
    case kFeaturePower:  // there is one power state only
    case kFeatureCommandSetProfile:
      return value == 0;
    case kFeatureWriteCache:
    case kFeatureKeyValue:
      return value <= 1;
    case kFeatureQueues:
      return (value & 0xffff) != 0xffff && value >> 16 != 0xffff && queues > 0;
    default:
      return true;
  }
}

}  // namespace

Features::Features(Health& health, const ControllerOptions& options)
    : health_(health), host_id_(options.host_id), queues_(options.max_io_queues), fabrics_(options.fabrics) {
  reset();
}

void Features::reset() {
  for (const std::uint32_t feature : kKnown) values_[feature] = saved_value(feature);
  values_[kUnderThreshold] = saved_value(kUnderThreshold);
  host_behavior_ = {};
}

std::uint32_t Features::default_value(std::uint32_t key) const {
  switch (key) {
    case kFeatureTemperatureThreshold:
      return kWarningKelvin;
    case kFeatureWriteCache:
      return 1;
    case kFeatureQueues:
      return (queues_ - 1u) * 0x10001u;
    default:
      return 0;
  }
}

std::uint32_t Features::saved_value(std::uint32_t key) const {
  return health_.saved_feature(key).value_or(default_value(key));
}

bool Features::temperature_warning() const {
  return kRoomKelvin >= values_.at(kFeatureTemperatureThreshold) || kRoomKelvin <= values_.at(kUnderThreshold);
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
      return get ? (command.cdw11 & kExtendedHostId ? 16 : 8) : 0;  // Set Features is refused before any data
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
  const auto key = saved_key(feature, command.cdw11);
  if (!values_.contains(feature)) return {.status = abi::kInvalidField, .location = kInCdw10};
  if (select > kCapabilities) return {.status = abi::kInvalidField, .location = kInCdw10 + 1};
  if (!key) return {.status = abi::kInvalidField, .location = kInCdw11 + 2};
  if (select == kCapabilities) {
    return {.result = (changeable(feature) ? kChangeable : 0) | (saveable(feature) ? kSaveable : 0)};
  }
  if (feature == kFeatureHostId && fabrics_ && !(command.cdw11 & kExtendedHostId)) {
    return {.status = abi::kInvalidField, .location = kInCdw11};  // hosts over fabrics have 128-bit identifiers
  }
  Reply reply{.result = select == kCurrent && !of_namespace(feature) ? values_.at(*key)
                        : select == kDefault                         ? default_value(*key)
                                                                     : saved_value(*key)};
  switch (feature) {
    case kFeatureTimestamp:  // 48 bits of milliseconds, then their origin
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
  const std::uint32_t feature = feature_of(command);
  const auto key = saved_key(feature, command.cdw11);
  const std::uint32_t value = feature == kFeatureTemperatureThreshold ? command.cdw11 & 0xffff : command.cdw11;
  const bool save = command.cdw10 & kSave;
  if (!values_.contains(feature)) return {.status = abi::kInvalidField, .location = kInCdw10};
  const bool named = command.nsid != 0 && command.nsid != kNsidAll;
  if (named && !(of_namespace(feature) && command.nsid == kNsidValues)) {
    return {.status = kScFeatureNotNamespaceSpecific, .location = kInNsid};
  }
  if (save && !saveable(feature)) return {.status = kScFeatureNotSaveable, .location = kInCdw10 + 3};
  if (!changeable(feature)) return {.status = kScFeatureNotChangeable, .location = kInCdw10};
  if (!key || !acceptable(feature, value, queues_)) return {.status = abi::kInvalidField, .location = kInCdw11};
  if (data.size() < data_bytes(command)) return {.status = abi::kDataLength};
  std::uint32_t& current = values_.at(*key);
  if (save || of_namespace(feature)) health_.save_feature(*key, value);
  switch (feature) {
    case kFeatureQueues: {  // low half: submission queues; high half: completion queues; both 0's based
      const std::uint32_t most = queues_ - 1u;
      current = std::min(value & 0xffff, most) | std::min(value >> 16, most) << 16;
      return {.result = current};
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
      current = value;
      return {};
  }
}

}  // namespace kvdrive::nvme
