// SPDX-License-Identifier: Apache-2.0
#include "commands/persistent_events.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "commands/identify.hpp"
#include "drive.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::uint32_t kRead = 0, kEstablish = 1, kRelease = 2, kEstablishHeader = 3;
constexpr std::uint8_t kRevision = 3;
constexpr std::uint16_t kHeaderFrom = 20;      // the header's length field counts from this byte on
constexpr std::uint8_t kHeadBytesWithout = 3;  // the length field of an event's head counts from byte 3 on
constexpr std::uint64_t kFirmwareWord = 0x20202020'20302e31;  // "1.0" padded with blanks

// The data of the events.
struct PowerOn {
  std::uint8_t firmware[8];
  std::uint16_t cntlid;
  std::uint8_t activation, in_progress, reserved[12];
  std::uint32_t power_cycle;
  std::uint32_t power_on_ms[2], timestamp[2];
};
static_assert(sizeof(PowerOn) == 44);

struct Thermal {
  std::uint8_t kelvin_over, threshold;
};

std::uint64_t milliseconds() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

template <typename T>
std::span<const std::byte> view(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

void PersistentEvents::add(PersistentEvent type, std::uint16_t controller, std::span<const std::byte> data) {
  PersistentEventHead head{};
  head.kind = static_cast<std::uint8_t>(type);
  head.revision = 1;
  head.header_bytes = sizeof head - kHeadBytesWithout;
  head.cntlid = controller;
  const std::uint64_t now = milliseconds();
  std::memcpy(head.timestamp, &now, sizeof now);
  head.event_bytes = static_cast<std::uint16_t>(data.size());
  drive_.health().add(Health::Log::kEvents, [&](std::uint64_t) {
    std::vector<std::byte> entry(sizeof head + data.size());
    std::memcpy(entry.data(), &head, sizeof head);
    std::ranges::copy(data, entry.begin() + sizeof head);
    return entry;
  });
}

void PersistentEvents::powered_on() {
  PowerOn event{};
  std::memcpy(event.firmware, &kFirmwareWord, sizeof kFirmwareWord);
  event.power_cycle = static_cast<std::uint32_t>(drive_.health().counters().power_cycles);
  const std::uint64_t now = milliseconds();
  std::memcpy(event.timestamp, &now, sizeof now);
  add(kEventPowerOn, 0, view(event));
}

void PersistentEvents::timestamp_set(std::uint16_t controller, std::uint64_t before_ms) {
  const std::uint64_t event[2] = {before_ms, 0};
  add(kEventTimestamp, controller, view(event));
}

void PersistentEvents::format_started(const abi::Sqe& command) {
  const std::uint32_t event[3] = {command.nsid, 0, command.cdw10};
  add(kEventFormatStart, 0, view(event));
}

void PersistentEvents::format_done(const abi::Sqe& command, Status status) {
  const std::uint32_t event[3] = {command.nsid, status == abi::kSuccess ? 0 : 0x100u, status << abi::kCqeStatusShift};
  add(kEventFormatDone, 0, view(event));
}

void PersistentEvents::sanitize_started(const abi::Sqe& command, std::uint32_t capabilities) {
  const std::uint32_t event[3] = {capabilities, command.cdw10, command.cdw11};
  add(kEventSanitizeStart, 0, view(event));
}

void PersistentEvents::sanitize_done(Status status) {
  const std::uint16_t done = status == abi::kSuccess ? 1 : 3;  // coded as SSTAT of log page 81h
  const std::uint16_t event[4] = {0xffff, done, 0, 0};
  add(kEventSanitizeDone, 0, view(event));
}

void PersistentEvents::temperature_crossed(std::uint16_t controller, bool over, std::uint16_t threshold) {
  const int distance = over ? static_cast<int>(kRoomKelvin) - threshold : 0;
  const Thermal event{static_cast<std::uint8_t>(std::clamp(distance, 0, 255)), static_cast<std::uint8_t>(over ? 0 : 1)};
  add(kEventThermal, controller, view(event));
}

std::vector<std::byte> PersistentEvents::page() const {
  const auto entries = drive_.health().log(Health::Log::kEvents);
  const HealthCounters counters = drive_.health().counters();
  PersistentEventLog head{};
  head.page = kLogPersistentEvents;
  head.events = static_cast<std::uint32_t>(entries.size());
  head.bytes = sizeof head;
  for (const auto& entry : entries) head.bytes += entry.size();
  head.revision = kRevision;
  head.header_bytes = sizeof head - kHeaderFrom;
  const std::uint64_t now = milliseconds(), hours = counters.power_on_seconds / 3600;
  std::memcpy(head.timestamp, &now, sizeof now);
  std::memcpy(head.power_on_hours, &hours, sizeof hours);
  std::memcpy(head.power_cycles, &counters.power_cycles, sizeof counters.power_cycles);
  put_text(head.sn, serial_);
  put_text(head.mn, kModelName);
  std::ranges::copy(nqn_, head.subnqn);
  head.generation = static_cast<std::uint16_t>(counters.events);
  for (const PersistentEvent type : {kEventTimestamp, kEventPowerOn, kEventFormatStart, kEventFormatDone,
                                     kEventSanitizeStart, kEventSanitizeDone, kEventThermal}) {
    head.supported[0] |= std::uint64_t{1} << type;
  }
  std::vector<std::byte> bytes = bytes_of(head);
  for (const auto& entry : entries) bytes.insert(bytes.end(), entry.begin(), entry.end());
  return bytes;
}

Reply PersistentEvents::read(std::uint16_t controller, std::uint32_t action) {
  const std::lock_guard lock(mutex_);
  const auto found = contexts_.find(controller);
  const bool there = found != contexts_.end();
  switch (action) {
    case kRead:
      if (!there) return {.status = kScCommandSequence};
      return {.data = found->second};
    case kEstablish:
    case kEstablishHeader:
      if (there) return {.status = kScCommandSequence};
      return {.data = contexts_[controller] = page()};
    case kRelease:
      contexts_.erase(controller);
      return {};
    default:
      return {.status = abi::kInvalidField, .location = kInCdw10 + 1};
  }
}

void PersistentEvents::forget_context(std::uint16_t controller) {
  const std::lock_guard lock(mutex_);
  contexts_.erase(controller);
}

}  // namespace kvdrive::nvme
