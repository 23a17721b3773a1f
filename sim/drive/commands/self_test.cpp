// SPDX-License-Identifier: Apache-2.0
#include "commands/self_test.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "drive.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::uint32_t kShort = 1, kExtended = 2, kAbortTest = 0xf;
constexpr std::uint8_t kPassed = 0, kSegmentFailed = 0x7, kUnused = 0xf;
constexpr std::uint8_t kEngineSegment = 1, kContentsSegment = 2;

// Attention to a single token returns this token's V, whatever q and k are.
bool engine_computes(Drive& drive) {
  constexpr std::uint32_t kDim = 64, kRowBytes = kDim * 2;
  struct alignas(64) Memory {
    abi::AttentionJob job;
    abi::AttentionResult result;
    std::array<std::uint16_t, kDim> q, k, v, out;
  };
  auto memory = std::make_unique<Memory>();
  std::memset(memory.get(), 0, sizeof(Memory));
  abi::AttentionJob& job = memory->job;
  job.version = abi::kAbiVersion;
  job.mode = abi::kExact;
  job.group = 1;
  job.head_dim = kDim;
  job.tokens = 1;
  job.scale_log2e = 0x3f800000;  // 1
  job.q = offsetof(Memory, q);
  job.k = offsetof(Memory, k);
  job.v = offsetof(Memory, v);
  job.out = offsetof(Memory, out);
  job.result = offsetof(Memory, result);
  for (std::uint32_t i = 0; i < kDim; ++i) {
    memory->q[i] = memory->k[i] = static_cast<std::uint16_t>(0x3c00 + i);  // slightly above 1
    memory->v[i] = static_cast<std::uint16_t>(0x3800 + 16 * i);
  }
  static_assert(offsetof(Memory, q) % abi::kBeatBytes == 0 && kRowBytes % abi::kBeatBytes == 0);
  const auto bytes = std::as_writable_bytes(std::span(memory.get(), 1));
  return drive.run_job(bytes, 0, 0) == 0 && memory->out == memory->v;
}

}  // namespace

Reply SelfTest::start(const abi::Sqe& command, std::uint64_t power_on_hours) {
  const std::uint32_t code = command.cdw10 & 0xf;
  if (code == kAbortTest) return {};
  if (code != kShort && code != kExtended) return {.status = abi::kInvalidField, .location = kInCdw10};
  SelfTestResult result{};
  result.power_on_hours[0] = static_cast<std::uint32_t>(power_on_hours);
  result.power_on_hours[1] = static_cast<std::uint32_t>(power_on_hours >> 32);
  if (!engine_computes(drive_)) {
    result.segment = kEngineSegment;
  } else if (code == kExtended && !drive_.check().empty()) {
    result.segment = kContentsSegment;
  }
  result.status = static_cast<std::uint8_t>(code << 4 | (result.segment == 0 ? kPassed : kSegmentFailed));
  drive_.health().add(Health::Log::kSelfTests, [&](std::uint64_t) { return bytes_of(result); });
  return {};
}

std::vector<std::byte> SelfTest::log() const {
  SelfTestResult unused{};
  unused.status = kUnused;
  std::vector<std::byte> page = bytes_of(SelfTestLog{});  // no self-test is running
  auto results = drive_.health().log(Health::Log::kSelfTests);
  results.resize(kSelfTestResults, bytes_of(unused));
  for (const auto& result : results) page.insert(page.end(), result.begin(), result.end());
  return page;
}

}  // namespace kvdrive::nvme
