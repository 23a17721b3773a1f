// SPDX-License-Identifier: Apache-2.0
#include "tcp/discovery.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "commands/reply.hpp"
#include "commands/wire.hpp"

namespace kvdrive::tcp {
namespace {

using nvme::Status;

constexpr std::uint32_t kEnable = 1, kReady = 1, kShutdownComplete = 2u << 2;
constexpr std::uint8_t kDiscoveryLog = 0x70;
constexpr std::uint8_t kTcp = 3, kIpv4 = 1, kIpv6 = 2, kNvmSubsystem = 2, kDiscoveryType = 2;

struct DiscoveryLog {
  std::uint64_t generation, records;
  std::uint16_t format;
  std::uint8_t reserved[1006];
};

struct DiscoveryEntry {
  std::uint8_t transport, family, subsystem_type, requirements;
  std::uint16_t port_id, controller_id, admin_queue_entries, flags;
  std::uint8_t reserved0[20];
  char service[32];
  std::uint8_t reserved1[192];
  char subsystem_nqn[256], address[256];
  std::uint8_t specific[256];
};

static_assert(sizeof(DiscoveryLog) == 1024 && sizeof(DiscoveryEntry) == 1024);

// Text fields are padded with spaces; strings such as NQNs and addresses are padded with zeros.
template <std::size_t N>
void put_text(std::uint8_t (&field)[N], std::string_view text) {
  std::memset(field, ' ', N);
  text.copy(reinterpret_cast<char*>(field), N);
}

template <std::size_t N>
void put_padded(char (&field)[N], std::string_view text, char fill) {
  std::memset(field, fill, N);
  text.copy(field, N);
}

std::uint64_t log_bytes(const abi::Sqe& command) {
  return ((std::uint64_t{command.cdw11 & 0xffff} << 16 | command.cdw10 >> 16) + 1) * 4;
}

}  // namespace

DiscoveryController::DiscoveryController(std::uint16_t id, std::string subsystem_nqn, Address address)
    : id_(id), subsystem_nqn_(std::move(subsystem_nqn)), address_(std::move(address)) {}

std::optional<std::uint64_t> DiscoveryController::property(std::uint32_t offset, std::uint32_t bytes) const {
  // 128 entries, contiguous queues, 10 s to become ready, the NVM command set.
  constexpr std::uint64_t kCapabilities = 127 | 1u << 16 | 20u << 24 | std::uint64_t{1} << 37;
  if (offset == nvme::kCap && bytes == 8) return kCapabilities;
  if (bytes != 4) return std::nullopt;
  if (offset == nvme::kVs) return nvme::kVersion21;
  if (offset == nvme::kCc) return cc_;
  if (offset == nvme::kCsts) return csts_;
  return std::nullopt;
}

Status DiscoveryController::set_property(std::uint32_t offset, std::uint32_t bytes, std::uint64_t value) {
  if (offset != nvme::kCc || bytes != 4) return abi::kInvalidField;
  cc_ = static_cast<std::uint32_t>(value);
  csts_ = (cc_ & kEnable ? kReady : 0) | (cc_ >> 14 & 3 ? kShutdownComplete : 0);
  if (!ready()) event_request_ = false;
  return abi::kSuccess;
}

Status DiscoveryController::connect_queue(nvme::QueueId id, std::uint32_t entries) {
  if (id != 0) return abi::kInvalidField;  // this controller has no I/O queues
  entries_ = entries;
  return abi::kSuccess;
}

nvme::Transfer DiscoveryController::transfer(nvme::QueueId, const abi::Sqe& command) const {
  if (command.opcode == nvme::kIdentify) return {nvme::Direction::kToHost, nvme::kIdentifyBytes};
  if (command.opcode == nvme::kGetLogPage) return {nvme::Direction::kToHost, log_bytes(command)};
  return {};
}

nvme::Response DiscoveryController::complete(const abi::Sqe& command, Status status, std::uint64_t result, Bytes data) {
  head_ = (head_ + 1) % entries_;
  const std::uint32_t refused = status == abi::kSuccess ? 0 : abi::kCqeDoNotRetry;
  return {{result, static_cast<std::uint16_t>(head_), 0, command.cid,
           static_cast<std::uint16_t>(status << abi::kCqeStatusShift | refused)},
          std::move(data)};
}

nvme::Response DiscoveryController::refuse(nvme::QueueId, const abi::Sqe& command, Status status) {
  return complete(command, status);
}

std::optional<nvme::Response> DiscoveryController::execute(nvme::QueueId, const abi::Sqe& command,
                                                           const nvme::DataBuffer& data) {
  if (!ready()) return complete(command, nvme::kScCommandSequence);
  Bytes page;
  std::uint64_t offset = 0;
  switch (command.opcode) {
    case nvme::kIdentify:
      if ((command.cdw10 & 0xff) != nvme::kCnsController) return complete(command, abi::kInvalidField);
      page = identify();
      break;
    case nvme::kGetLogPage:
      if ((command.cdw10 & 0xff) != kDiscoveryLog) return complete(command, nvme::kScBadLogPage);
      page = log_page();
      offset = std::uint64_t{command.cdw13} << 32 | command.cdw12;
      if (offset % 4 != 0 || offset > page.size()) return complete(command, abi::kInvalidField);
      break;
    case nvme::kKeepAlive:
      last_keep_alive_ = Clock::now();
      return complete(command, abi::kSuccess);
    case nvme::kSetFeatures:
      if ((command.cdw10 & 0xff) == nvme::kFeatureKeepAlive)
        set_keep_alive(command.cdw11);
      else if ((command.cdw10 & 0xff) != nvme::kFeatureAsyncEvents)
        return complete(command, abi::kInvalidField);
      return complete(command, abi::kSuccess);
    case nvme::kGetFeatures:
      if ((command.cdw10 & 0xff) != nvme::kFeatureKeepAlive) return complete(command, abi::kInvalidField);
      return complete(command, abi::kSuccess, keep_alive_ms_);
    case nvme::kAsyncEventRequest:
      // The log never changes while a target runs, so the request stays outstanding.
      if (event_request_) return complete(command, nvme::kScAsyncEventLimit);
      event_request_ = true;
      return std::nullopt;
    default:
      return complete(command, abi::kInvalidOpcode);
  }
  // The log page is followed by zeros up to the requested length.
  const std::uint64_t wanted = transfer(0, command).bytes.value_or(0);
  const std::uint64_t bytes = std::min(wanted, data.room);
  page.erase(page.begin(), page.begin() + static_cast<std::ptrdiff_t>(offset));
  page.resize(bytes);
  return complete(command, abi::kSuccess, 0, std::move(page));
}

void DiscoveryController::set_keep_alive(std::uint32_t milliseconds) {
  keep_alive_ms_ = milliseconds;
  last_keep_alive_ = Clock::now();
}

bool DiscoveryController::keep_alive_expired(Clock::time_point now) const {
  return keep_alive_ms_ != 0 && now - last_keep_alive_ > std::chrono::milliseconds(keep_alive_ms_);
}

Bytes DiscoveryController::identify() const {
  nvme::IdentifyController page{};
  put_text(page.sn, "DISCOVERY");
  put_text(page.mn, "kvdrive discovery");
  put_text(page.fr, "1");
  page.mdts = 5;
  page.cntlid = id_;
  page.ver = nvme::kVersion21;
  page.cntrltype = kDiscoveryType;
  page.lpa = 1u << 2;  // log pages may be read in parts
  page.kas = 1;
  page.maxcmd = 128;
  page.sgls = 1u | 1u << 20;  // SGLs, with data in capsules
  std::memcpy(page.subnqn, kDiscoveryNqn, std::string_view(kDiscoveryNqn).size());
  page.ioccsz = sizeof(abi::Sqe) / 16;
  page.iorcsz = sizeof(abi::Cqe) / 16;
  page.msdbd = 1;
  return nvme::bytes_of(page);
}

Bytes DiscoveryController::log_page() const {
  struct {
    DiscoveryLog head;
    DiscoveryEntry entry;
  } page{};
  page.head.generation = 1;
  if (!subsystem_nqn_.empty()) {
    page.head.records = 1;
    page.entry.transport = kTcp;
    page.entry.family = address_.ipv6 ? kIpv6 : kIpv4;
    page.entry.subsystem_type = kNvmSubsystem;
    page.entry.requirements = 1u << 2;  // SQ flow control can be switched off
    page.entry.port_id = 1;
    page.entry.controller_id = 0xffff;  // Connect creates the controller
    page.entry.admin_queue_entries = 32;
    put_padded(page.entry.service, std::to_string(address_.port), ' ');
    put_padded(page.entry.subsystem_nqn, subsystem_nqn_, '\0');
    put_padded(page.entry.address, address_.host, ' ');
  }
  Bytes bytes = nvme::bytes_of(page);
  if (subsystem_nqn_.empty()) bytes.resize(sizeof page.head);
  return bytes;
}

}  // namespace kvdrive::tcp
