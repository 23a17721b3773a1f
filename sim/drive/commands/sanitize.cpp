// SPDX-License-Identifier: Apache-2.0
#include "commands/sanitize.hpp"

#include "commands/wire.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::uint32_t kActionMask = 0x7, kLeaveFailure = 1, kBlockErase = 2;
constexpr std::uint32_t kNoDeallocate = 1 << 9;
// SSTAT: the state is in bits 2:0; bit 8 is set while nothing was written since the last sanitize.
constexpr std::uint16_t kNever = 0, kCompleted = 1, kFailed = 3, kGlobalDataErased = 1 << 8;
constexpr std::uint16_t kNothingRuns = 0xffff;  // SPROG: no operation runs
constexpr std::uint32_t kNoEstimate = 0xffffffff;

}  // namespace

Reply Sanitizer::start(const abi::Sqe& command) {
  const std::uint32_t action = command.cdw10 & kActionMask;
  if (action == kLeaveFailure) {
    std::uint16_t failed = kFailed;
    state_.compare_exchange_strong(failed, kNever);
    return {};
  }
  if (action != kBlockErase || command.cdw10 & kNoDeallocate)
    return {.status = abi::kInvalidField, .location = kInCdw10};
  command_ = command.cdw10;
  memory_.clear();
  const bool done = drive_.sanitize() == abi::kSuccess;
  state_ = done ? kCompleted : kFailed;
  untouched_ = done;
  return {.status = done ? Status{abi::kSuccess} : Status{kScSanitizeFailed}};
}

std::vector<std::byte> Sanitizer::status() const {
  SanitizeStatus log{};
  log.sprog = kNothingRuns;
  log.sstat = static_cast<std::uint16_t>(state_ | (untouched_ ? kGlobalDataErased : 0));
  log.scdw10 = command_;
  log.eto = log.etbe = log.etce = log.etond = log.etbend = log.etcend = log.etpvds = kNoEstimate;
  return bytes_of(log);
}

}  // namespace kvdrive::nvme
