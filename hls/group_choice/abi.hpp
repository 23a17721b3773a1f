// SPDX-License-Identifier: Apache-2.0
// Generated from abi/abi.toml by abi/generate.py; do not edit.
// clang-format off
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvdrive {
namespace abi {

constexpr int kSpanTokens = 32;
constexpr int kMinIndexExponent = 2;
constexpr int kMaxIndexExponent = 34;
constexpr std::uint32_t kUnitTokens[4] = {
    16, 32, 64, 128,
};
constexpr std::uint32_t kChoiceHeadDims[4] = {
    32, 64, 128, 256,
};

enum GroupsStatus : std::uint32_t {
  kBadUnit = 0x1000,
  kBadExponent = 0x2000,
};

struct GroupChoiceJob {
  std::uint16_t version;
  std::uint8_t group;
  std::uint8_t unit;
  std::uint16_t head_dim;
  std::uint16_t exponent;
  std::uint32_t tokens;
  std::uint32_t tail_tokens;
  std::uint32_t k_top;
  std::uint32_t scale_log2e;
  std::uint64_t reserved0;
  std::uint64_t q;
  std::uint64_t index;
  std::uint64_t tail_scores;
  std::uint64_t valid;
  std::uint64_t out;
  std::uint64_t result;
  std::uint64_t reserved1[6];
};
static_assert(sizeof(GroupChoiceJob) == 128, "size");
static_assert(offsetof(GroupChoiceJob, version) == 0, "offset");
static_assert(offsetof(GroupChoiceJob, group) == 2, "offset");
static_assert(offsetof(GroupChoiceJob, unit) == 3, "offset");
static_assert(offsetof(GroupChoiceJob, head_dim) == 4, "offset");
static_assert(offsetof(GroupChoiceJob, exponent) == 6, "offset");
static_assert(offsetof(GroupChoiceJob, tokens) == 8, "offset");
static_assert(offsetof(GroupChoiceJob, tail_tokens) == 12, "offset");
static_assert(offsetof(GroupChoiceJob, k_top) == 16, "offset");
static_assert(offsetof(GroupChoiceJob, scale_log2e) == 20, "offset");
static_assert(offsetof(GroupChoiceJob, reserved0) == 24, "offset");
static_assert(offsetof(GroupChoiceJob, q) == 32, "offset");
static_assert(offsetof(GroupChoiceJob, index) == 40, "offset");
static_assert(offsetof(GroupChoiceJob, tail_scores) == 48, "offset");
static_assert(offsetof(GroupChoiceJob, valid) == 56, "offset");
static_assert(offsetof(GroupChoiceJob, out) == 64, "offset");
static_assert(offsetof(GroupChoiceJob, result) == 72, "offset");
static_assert(offsetof(GroupChoiceJob, reserved1) == 80, "offset");
namespace groupchoicejob_bit {
constexpr int kVersion = 0;
constexpr int kGroup = 16;
constexpr int kUnit = 24;
constexpr int kHeadDim = 32;
constexpr int kExponent = 48;
constexpr int kTokens = 64;
constexpr int kTailTokens = 96;
constexpr int kKTop = 128;
constexpr int kScaleLog2e = 160;
constexpr int kReserved0 = 192;
constexpr int kQ = 256;
constexpr int kIndex = 320;
constexpr int kTailScores = 384;
constexpr int kValid = 448;
constexpr int kOut = 512;
constexpr int kResult = 576;
constexpr int kReserved1 = 640;
}  // namespace groupchoicejob_bit

struct GroupChoiceResult {
  std::uint32_t status;
  std::uint32_t selected;
  std::uint32_t reserved0[2];
  std::int32_t max[8];
  std::uint32_t reserved1[4];
  std::uint64_t sum[8];
  std::uint64_t unread[8];
};
static_assert(sizeof(GroupChoiceResult) == 192, "size");
static_assert(offsetof(GroupChoiceResult, status) == 0, "offset");
static_assert(offsetof(GroupChoiceResult, selected) == 4, "offset");
static_assert(offsetof(GroupChoiceResult, reserved0) == 8, "offset");
static_assert(offsetof(GroupChoiceResult, max) == 16, "offset");
static_assert(offsetof(GroupChoiceResult, reserved1) == 48, "offset");
static_assert(offsetof(GroupChoiceResult, sum) == 64, "offset");
static_assert(offsetof(GroupChoiceResult, unread) == 128, "offset");
namespace groupchoiceresult_bit {
constexpr int kStatus = 0;
constexpr int kSelected = 32;
constexpr int kReserved0 = 64;
constexpr int kMax = 128;
constexpr int kReserved1 = 384;
constexpr int kSum = 512;
constexpr int kUnread = 1024;
}  // namespace groupchoiceresult_bit

}  // namespace abi
}  // namespace kvdrive
