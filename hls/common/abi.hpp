// SPDX-License-Identifier: Apache-2.0
// Generated from abi/abi.toml by abi/generate.py; do not edit.
// clang-format off
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvdrive {
namespace abi {

constexpr int kAbiVersion = 1;
constexpr int kBeatBits = 512;
constexpr int kBeatBytes = 64;
constexpr int kLanes = 32;
constexpr int kMaxHeadDim = 256;
constexpr int kHeadDimStep = 32;
constexpr int kMaxGroup = 8;
constexpr int kMaxTokens = 131072;
constexpr int kMaxTopK = 16384;
constexpr int kInsertionK = 32;
constexpr int kInsertionKeys = 512;
constexpr int kMinRowBytes = 32;
constexpr int kMaxRowBytes = 512;
constexpr int kRowBytesStep = 32;
constexpr int kPageBytes = 4096;
constexpr int kScoreFractionBits = 20;
constexpr int kPFractionBits = 31;
constexpr int kExp2IndexBits = 6;
constexpr int kExp2C0Bits = 22;
constexpr int kExp2C1Bits = 17;
constexpr int kExp2C2Bits = 11;
constexpr int kExp2Bits = 19;
constexpr int kExp2Rounding = 5;
constexpr int kWeightBits = 24;
constexpr int kSqeBytes = 64;
constexpr int kCqeBytes = 16;
constexpr int kCqeStatusShift = 1;
constexpr int kCqeDoNotRetry = 32768;
constexpr int kCommandHeadDimStep = 8;
constexpr int kMaxCommandGroup = 128;
constexpr int kFormatPart = 32;
constexpr int kSpanTokens = 32;
constexpr int kMinIndexExponent = 2;
constexpr int kMaxIndexExponent = 34;
constexpr std::uint32_t kGroupSizes[5] = {
    1, 2, 4, 5, 8,
};
constexpr std::uint32_t kFilterPageBytes[3] = {
    4096, 8192, 16384,
};
constexpr std::uint32_t kCommandGroups[30] = {
    1, 2, 3, 4, 5, 6, 7, 8,
    9, 10, 11, 12, 13, 14, 15, 16,
    24, 32, 40, 48, 56, 64, 72, 80,
    88, 96, 104, 112, 120, 128,
};
constexpr std::uint32_t kUnitTokens[4] = {
    16, 32, 64, 128,
};
constexpr std::uint32_t kChoiceHeadDims[4] = {
    32, 64, 128, 256,
};
constexpr std::uint32_t kExp2C0[64] = {
    4194304, 4239977, 4286147, 4332820, 4380002, 4427697, 4475911, 4524651,
    4573921, 4623728, 4674077, 4724974, 4776426, 4828438, 4881016, 4934167,
    4987896, 5042211, 5097117, 5152621, 5208729, 5265449, 5322786, 5380747,
    5439339, 5498570, 5558445, 5618973, 5680159, 5742012, 5804539, 5867746,
    5931642, 5996233, 6061528, 6127533, 6194258, 6261709, 6329894, 6398822,
    6468501, 6538938, 6610143, 6682122, 6754886, 6828442, 6902799, 6977965,
    7053950, 7130763, 7208412, 7286906, 7366255, 7446469, 7527555, 7609525,
    7692387, 7776152, 7860829, 7946428, 8032959, 8120432, 8208857, 8298246,
};
constexpr std::uint32_t kExp2C1[64] = {
    90852, 91842, 92842, 93853, 94875, 95908, 96952, 98008,
    99075, 100154, 101244, 102347, 103461, 104588, 105727, 106878,
    108042, 109219, 110408, 111610, 112825, 114054, 115296, 116552,
    117821, 119104, 120401, 121712, 123037, 124377, 125731, 127100,
    128484, 129883, 131298, 132728, 134173, 135634, 137111, 138604,
    140113, 141639, 143181, 144740, 146317, 147910, 149520, 151149,
    152795, 154458, 156140, 157841, 159559, 161297, 163053, 164829,
    166624, 168438, 170272, 172126, 174001, 175895, 177811, 179747,
};
constexpr std::uint32_t kExp2C2[64] = {
    492, 497, 503, 508, 514, 519, 525, 531,
    537, 542, 548, 554, 560, 566, 573, 579,
    585, 591, 598, 604, 611, 618, 624, 631,
    638, 645, 652, 659, 666, 674, 681, 688,
    696, 703, 711, 719, 727, 734, 742, 751,
    759, 767, 775, 784, 792, 801, 810, 819,
    827, 836, 846, 855, 864, 873, 883, 893,
    902, 912, 922, 932, 942, 953, 963, 973,
};

enum Mode : std::uint32_t {
  kExact = 0x0,
  kPartial = 0x1,
  kSparfRows = 0x2,
  kSparfTokens = 0x3,
  kSparfAttend = 0x4,
  kGroups = 0x5,
};

enum KeyType : std::uint32_t {
  kBinary32 = 0x0,
  kMagnitude16 = 0x1,
};

enum Status : std::uint32_t {
  kBadVersion = 0x1,
  kBadMode = 0x2,
  kBadGroup = 0x4,
  kBadHeadDim = 0x8,
  kBadLength = 0x10,
  kBadR = 0x20,
  kBadK = 0x40,
  kUnaligned = 0x80,
  kOutOfRange = 0x100,
  kBadScale = 0x200,
  kBadRowBytes = 0x400,
  kBadPageBytes = 0x800,
  kBadUnit = 0x1000,
  kBadExponent = 0x2000,
  kNonFinite = 0x10000,
  kEmpty = 0x20000,
};

enum Opcode : std::uint32_t {
  kFlush = 0x0,
  kKvAppend = 0x81,
  kKvRead = 0x82,
  kSessionTrim = 0x84,
  kAttnSubmit = 0x85,
  kAttnFetch = 0x86,
  kSessionFork = 0x88,
  kSessionErase = 0x8c,
  kFfnSubmit = 0x8d,
  kSessionRemove = 0x90,
  kAttnSubmitRows = 0x91,
};

enum Namespace : std::uint32_t {
  kNvm = 0x1,
  kCp = 0x3,
};

enum KvKind : std::uint32_t {
  kKeys = 0x0,
  kValues = 0x1,
};

enum AppendOption : std::uint32_t {
  kAppendFua = 0x1,
  kAppendSparse = 0x2,
  kAppendGroups = 0x4,
};

enum NvmeStatus : std::uint32_t {
  kSuccess = 0x0,
  kInvalidOpcode = 0x1,
  kInvalidField = 0x2,
  kInternalError = 0x6,
  kInvalidNamespace = 0xb,
  kDataLength = 0xf,
  kCapacityExceeded = 0x81,
  kUnrecoveredRead = 0x281,
  kCrcMismatch = 0x701,
  kOutOfSequence = 0x702,
  kUnknownSession = 0x703,
  kTokenGap = 0x704,
  kTokensMissing = 0x705,
  kRowMismatch = 0x706,
  kUnknownTicket = 0x707,
  kTicketsExhausted = 0x708,
  kValueNotFinite = 0x709,
  kNoValidToken = 0x70a,
  kJobRefused = 0x70b,
  kSessionExists = 0x70c,
};

struct AttentionJob {
  std::uint16_t version;
  std::uint8_t mode;
  std::uint8_t group;
  std::uint16_t head_dim;
  std::uint16_t r;
  std::uint32_t tokens;
  std::uint32_t inline_tokens;
  std::uint32_t k_top;
  std::uint32_t local;
  std::uint32_t scale_log2e;
  std::uint32_t count;
  std::uint64_t q;
  std::uint64_t k;
  std::uint64_t v;
  std::uint64_t inline_scores;
  std::uint64_t inline_v;
  std::uint64_t valid;
  std::uint64_t rows;
  std::uint64_t v_sum;
  std::uint64_t out;
  std::uint64_t result;
  std::uint64_t reserved[2];
};
static_assert(sizeof(AttentionJob) == 128, "size");
static_assert(offsetof(AttentionJob, version) == 0, "offset");
static_assert(offsetof(AttentionJob, mode) == 2, "offset");
static_assert(offsetof(AttentionJob, group) == 3, "offset");
static_assert(offsetof(AttentionJob, head_dim) == 4, "offset");
static_assert(offsetof(AttentionJob, r) == 6, "offset");
static_assert(offsetof(AttentionJob, tokens) == 8, "offset");
static_assert(offsetof(AttentionJob, inline_tokens) == 12, "offset");
static_assert(offsetof(AttentionJob, k_top) == 16, "offset");
static_assert(offsetof(AttentionJob, local) == 20, "offset");
static_assert(offsetof(AttentionJob, scale_log2e) == 24, "offset");
static_assert(offsetof(AttentionJob, count) == 28, "offset");
static_assert(offsetof(AttentionJob, q) == 32, "offset");
static_assert(offsetof(AttentionJob, k) == 40, "offset");
static_assert(offsetof(AttentionJob, v) == 48, "offset");
static_assert(offsetof(AttentionJob, inline_scores) == 56, "offset");
static_assert(offsetof(AttentionJob, inline_v) == 64, "offset");
static_assert(offsetof(AttentionJob, valid) == 72, "offset");
static_assert(offsetof(AttentionJob, rows) == 80, "offset");
static_assert(offsetof(AttentionJob, v_sum) == 88, "offset");
static_assert(offsetof(AttentionJob, out) == 96, "offset");
static_assert(offsetof(AttentionJob, result) == 104, "offset");
static_assert(offsetof(AttentionJob, reserved) == 112, "offset");
namespace attentionjob_bit {
constexpr int kVersion = 0;
constexpr int kMode = 16;
constexpr int kGroup = 24;
constexpr int kHeadDim = 32;
constexpr int kR = 48;
constexpr int kTokens = 64;
constexpr int kInlineTokens = 96;
constexpr int kKTop = 128;
constexpr int kLocal = 160;
constexpr int kScaleLog2e = 192;
constexpr int kCount = 224;
constexpr int kQ = 256;
constexpr int kK = 320;
constexpr int kV = 384;
constexpr int kInlineScores = 448;
constexpr int kInlineV = 512;
constexpr int kValid = 576;
constexpr int kRows = 640;
constexpr int kVSum = 704;
constexpr int kOut = 768;
constexpr int kResult = 832;
constexpr int kReserved = 896;
}  // namespace attentionjob_bit

struct AttentionResult {
  std::uint32_t status;
  std::uint32_t selected;
  std::uint32_t reserved0[2];
  std::int32_t max[8];
  std::uint32_t reserved1[4];
  std::uint64_t sum[8];
  std::uint32_t scale[8];
  std::uint32_t alpha[8];
};
static_assert(sizeof(AttentionResult) == 192, "size");
static_assert(offsetof(AttentionResult, status) == 0, "offset");
static_assert(offsetof(AttentionResult, selected) == 4, "offset");
static_assert(offsetof(AttentionResult, reserved0) == 8, "offset");
static_assert(offsetof(AttentionResult, max) == 16, "offset");
static_assert(offsetof(AttentionResult, reserved1) == 48, "offset");
static_assert(offsetof(AttentionResult, sum) == 64, "offset");
static_assert(offsetof(AttentionResult, scale) == 128, "offset");
static_assert(offsetof(AttentionResult, alpha) == 160, "offset");
namespace attentionresult_bit {
constexpr int kStatus = 0;
constexpr int kSelected = 32;
constexpr int kReserved0 = 64;
constexpr int kMax = 128;
constexpr int kReserved1 = 384;
constexpr int kSum = 512;
constexpr int kScale = 1024;
constexpr int kAlpha = 1280;
}  // namespace attentionresult_bit

struct GroupChoiceJob {
  std::uint16_t version;
  std::uint8_t group;
  std::uint8_t unit;
  std::uint16_t head_dim;
  std::uint16_t exponent;
  std::uint32_t tokens;
  std::uint32_t inline_tokens;
  std::uint32_t k_top;
  std::uint32_t scale_log2e;
  std::uint64_t reserved0;
  std::uint64_t q;
  std::uint64_t index;
  std::uint64_t inline_scores;
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
static_assert(offsetof(GroupChoiceJob, inline_tokens) == 12, "offset");
static_assert(offsetof(GroupChoiceJob, k_top) == 16, "offset");
static_assert(offsetof(GroupChoiceJob, scale_log2e) == 20, "offset");
static_assert(offsetof(GroupChoiceJob, reserved0) == 24, "offset");
static_assert(offsetof(GroupChoiceJob, q) == 32, "offset");
static_assert(offsetof(GroupChoiceJob, index) == 40, "offset");
static_assert(offsetof(GroupChoiceJob, inline_scores) == 48, "offset");
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
constexpr int kInlineTokens = 96;
constexpr int kKTop = 128;
constexpr int kScaleLog2e = 160;
constexpr int kReserved0 = 192;
constexpr int kQ = 256;
constexpr int kIndex = 320;
constexpr int kInlineScores = 384;
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

struct Sqe {
  std::uint8_t opcode;
  std::uint8_t flags;
  std::uint16_t cid;
  std::uint32_t nsid;
  std::uint32_t cdw2;
  std::uint32_t cdw3;
  std::uint64_t mptr;
  std::uint64_t prp1;
  std::uint64_t prp2;
  std::uint32_t cdw10;
  std::uint32_t cdw11;
  std::uint32_t cdw12;
  std::uint32_t cdw13;
  std::uint32_t cdw14;
  std::uint32_t cdw15;
};
static_assert(sizeof(Sqe) == 64, "size");
static_assert(offsetof(Sqe, opcode) == 0, "offset");
static_assert(offsetof(Sqe, flags) == 1, "offset");
static_assert(offsetof(Sqe, cid) == 2, "offset");
static_assert(offsetof(Sqe, nsid) == 4, "offset");
static_assert(offsetof(Sqe, cdw2) == 8, "offset");
static_assert(offsetof(Sqe, cdw3) == 12, "offset");
static_assert(offsetof(Sqe, mptr) == 16, "offset");
static_assert(offsetof(Sqe, prp1) == 24, "offset");
static_assert(offsetof(Sqe, prp2) == 32, "offset");
static_assert(offsetof(Sqe, cdw10) == 40, "offset");
static_assert(offsetof(Sqe, cdw11) == 44, "offset");
static_assert(offsetof(Sqe, cdw12) == 48, "offset");
static_assert(offsetof(Sqe, cdw13) == 52, "offset");
static_assert(offsetof(Sqe, cdw14) == 56, "offset");
static_assert(offsetof(Sqe, cdw15) == 60, "offset");
namespace sqe_bit {
constexpr int kOpcode = 0;
constexpr int kFlags = 8;
constexpr int kCid = 16;
constexpr int kNsid = 32;
constexpr int kCdw2 = 64;
constexpr int kCdw3 = 96;
constexpr int kMptr = 128;
constexpr int kPrp1 = 192;
constexpr int kPrp2 = 256;
constexpr int kCdw10 = 320;
constexpr int kCdw11 = 352;
constexpr int kCdw12 = 384;
constexpr int kCdw13 = 416;
constexpr int kCdw14 = 448;
constexpr int kCdw15 = 480;
}  // namespace sqe_bit

struct Cqe {
  std::uint64_t result;
  std::uint16_t sq_head;
  std::uint16_t sq_id;
  std::uint16_t cid;
  std::uint16_t status;
};
static_assert(sizeof(Cqe) == 16, "size");
static_assert(offsetof(Cqe, result) == 0, "offset");
static_assert(offsetof(Cqe, sq_head) == 8, "offset");
static_assert(offsetof(Cqe, sq_id) == 10, "offset");
static_assert(offsetof(Cqe, cid) == 12, "offset");
static_assert(offsetof(Cqe, status) == 14, "offset");
namespace cqe_bit {
constexpr int kResult = 0;
constexpr int kSqHead = 64;
constexpr int kSqId = 80;
constexpr int kCid = 96;
constexpr int kStatus = 112;
}  // namespace cqe_bit

struct KvAppend {
  std::uint8_t opcode;
  std::uint8_t flags;
  std::uint16_t cid;
  std::uint32_t nsid;
  std::uint32_t session;
  std::uint8_t head;
  std::uint8_t heads;
  std::uint16_t layer;
  std::uint64_t mptr;
  std::uint64_t prp1;
  std::uint64_t prp2;
  std::uint32_t first_token;
  std::uint16_t tokens;
  std::uint8_t kind;
  std::uint8_t type;
  std::uint32_t row_bytes;
  std::uint32_t sequence;
  std::uint32_t crc32c;
  std::uint32_t options;
};
static_assert(sizeof(KvAppend) == 64, "size");
static_assert(offsetof(KvAppend, opcode) == 0, "offset");
static_assert(offsetof(KvAppend, flags) == 1, "offset");
static_assert(offsetof(KvAppend, cid) == 2, "offset");
static_assert(offsetof(KvAppend, nsid) == 4, "offset");
static_assert(offsetof(KvAppend, session) == 8, "offset");
static_assert(offsetof(KvAppend, head) == 12, "offset");
static_assert(offsetof(KvAppend, heads) == 13, "offset");
static_assert(offsetof(KvAppend, layer) == 14, "offset");
static_assert(offsetof(KvAppend, mptr) == 16, "offset");
static_assert(offsetof(KvAppend, prp1) == 24, "offset");
static_assert(offsetof(KvAppend, prp2) == 32, "offset");
static_assert(offsetof(KvAppend, first_token) == 40, "offset");
static_assert(offsetof(KvAppend, tokens) == 44, "offset");
static_assert(offsetof(KvAppend, kind) == 46, "offset");
static_assert(offsetof(KvAppend, type) == 47, "offset");
static_assert(offsetof(KvAppend, row_bytes) == 48, "offset");
static_assert(offsetof(KvAppend, sequence) == 52, "offset");
static_assert(offsetof(KvAppend, crc32c) == 56, "offset");
static_assert(offsetof(KvAppend, options) == 60, "offset");
namespace kvappend_bit {
constexpr int kOpcode = 0;
constexpr int kFlags = 8;
constexpr int kCid = 16;
constexpr int kNsid = 32;
constexpr int kSession = 64;
constexpr int kHead = 96;
constexpr int kHeads = 104;
constexpr int kLayer = 112;
constexpr int kMptr = 128;
constexpr int kPrp1 = 192;
constexpr int kPrp2 = 256;
constexpr int kFirstToken = 320;
constexpr int kTokens = 352;
constexpr int kKind = 368;
constexpr int kType = 376;
constexpr int kRowBytes = 384;
constexpr int kSequence = 416;
constexpr int kCrc32c = 448;
constexpr int kOptions = 480;
}  // namespace kvappend_bit

struct SessionTrim {
  std::uint8_t opcode;
  std::uint8_t flags;
  std::uint16_t cid;
  std::uint32_t nsid;
  std::uint32_t session;
  std::uint32_t reserved0;
  std::uint64_t mptr;
  std::uint64_t prp1;
  std::uint64_t prp2;
  std::uint32_t from_token;
  std::uint32_t reserved1[5];
};
static_assert(sizeof(SessionTrim) == 64, "size");
static_assert(offsetof(SessionTrim, opcode) == 0, "offset");
static_assert(offsetof(SessionTrim, flags) == 1, "offset");
static_assert(offsetof(SessionTrim, cid) == 2, "offset");
static_assert(offsetof(SessionTrim, nsid) == 4, "offset");
static_assert(offsetof(SessionTrim, session) == 8, "offset");
static_assert(offsetof(SessionTrim, reserved0) == 12, "offset");
static_assert(offsetof(SessionTrim, mptr) == 16, "offset");
static_assert(offsetof(SessionTrim, prp1) == 24, "offset");
static_assert(offsetof(SessionTrim, prp2) == 32, "offset");
static_assert(offsetof(SessionTrim, from_token) == 40, "offset");
static_assert(offsetof(SessionTrim, reserved1) == 44, "offset");
namespace sessiontrim_bit {
constexpr int kOpcode = 0;
constexpr int kFlags = 8;
constexpr int kCid = 16;
constexpr int kNsid = 32;
constexpr int kSession = 64;
constexpr int kReserved0 = 96;
constexpr int kMptr = 128;
constexpr int kPrp1 = 192;
constexpr int kPrp2 = 256;
constexpr int kFromToken = 320;
constexpr int kReserved1 = 352;
}  // namespace sessiontrim_bit

struct SessionFork {
  std::uint8_t opcode;
  std::uint8_t flags;
  std::uint16_t cid;
  std::uint32_t nsid;
  std::uint32_t session;
  std::uint32_t reserved0;
  std::uint64_t mptr;
  std::uint64_t prp1;
  std::uint64_t prp2;
  std::uint32_t target;
  std::uint32_t tokens;
  std::uint32_t reserved1[4];
};
static_assert(sizeof(SessionFork) == 64, "size");
static_assert(offsetof(SessionFork, opcode) == 0, "offset");
static_assert(offsetof(SessionFork, flags) == 1, "offset");
static_assert(offsetof(SessionFork, cid) == 2, "offset");
static_assert(offsetof(SessionFork, nsid) == 4, "offset");
static_assert(offsetof(SessionFork, session) == 8, "offset");
static_assert(offsetof(SessionFork, reserved0) == 12, "offset");
static_assert(offsetof(SessionFork, mptr) == 16, "offset");
static_assert(offsetof(SessionFork, prp1) == 24, "offset");
static_assert(offsetof(SessionFork, prp2) == 32, "offset");
static_assert(offsetof(SessionFork, target) == 40, "offset");
static_assert(offsetof(SessionFork, tokens) == 44, "offset");
static_assert(offsetof(SessionFork, reserved1) == 48, "offset");
namespace sessionfork_bit {
constexpr int kOpcode = 0;
constexpr int kFlags = 8;
constexpr int kCid = 16;
constexpr int kNsid = 32;
constexpr int kSession = 64;
constexpr int kReserved0 = 96;
constexpr int kMptr = 128;
constexpr int kPrp1 = 192;
constexpr int kPrp2 = 256;
constexpr int kTarget = 320;
constexpr int kTokens = 352;
constexpr int kReserved1 = 384;
}  // namespace sessionfork_bit

struct AttnSubmit {
  std::uint8_t opcode;
  std::uint8_t flags;
  std::uint16_t cid;
  std::uint32_t nsid;
  std::uint32_t session;
  std::uint8_t head;
  std::uint8_t heads;
  std::uint16_t layer;
  std::uint64_t mptr;
  std::uint64_t prp1;
  std::uint64_t prp2;
  std::uint32_t tokens;
  std::uint8_t mode;
  std::uint8_t group;
  std::uint8_t has_valid;
  std::uint8_t reserved0;
  std::uint16_t r;
  std::uint16_t k_top;
  std::uint16_t local;
  std::uint16_t inline_tokens;
  std::uint32_t crc32c;
  std::uint32_t scale_log2e;
};
static_assert(sizeof(AttnSubmit) == 64, "size");
static_assert(offsetof(AttnSubmit, opcode) == 0, "offset");
static_assert(offsetof(AttnSubmit, flags) == 1, "offset");
static_assert(offsetof(AttnSubmit, cid) == 2, "offset");
static_assert(offsetof(AttnSubmit, nsid) == 4, "offset");
static_assert(offsetof(AttnSubmit, session) == 8, "offset");
static_assert(offsetof(AttnSubmit, head) == 12, "offset");
static_assert(offsetof(AttnSubmit, heads) == 13, "offset");
static_assert(offsetof(AttnSubmit, layer) == 14, "offset");
static_assert(offsetof(AttnSubmit, mptr) == 16, "offset");
static_assert(offsetof(AttnSubmit, prp1) == 24, "offset");
static_assert(offsetof(AttnSubmit, prp2) == 32, "offset");
static_assert(offsetof(AttnSubmit, tokens) == 40, "offset");
static_assert(offsetof(AttnSubmit, mode) == 44, "offset");
static_assert(offsetof(AttnSubmit, group) == 45, "offset");
static_assert(offsetof(AttnSubmit, has_valid) == 46, "offset");
static_assert(offsetof(AttnSubmit, reserved0) == 47, "offset");
static_assert(offsetof(AttnSubmit, r) == 48, "offset");
static_assert(offsetof(AttnSubmit, k_top) == 50, "offset");
static_assert(offsetof(AttnSubmit, local) == 52, "offset");
static_assert(offsetof(AttnSubmit, inline_tokens) == 54, "offset");
static_assert(offsetof(AttnSubmit, crc32c) == 56, "offset");
static_assert(offsetof(AttnSubmit, scale_log2e) == 60, "offset");
namespace attnsubmit_bit {
constexpr int kOpcode = 0;
constexpr int kFlags = 8;
constexpr int kCid = 16;
constexpr int kNsid = 32;
constexpr int kSession = 64;
constexpr int kHead = 96;
constexpr int kHeads = 104;
constexpr int kLayer = 112;
constexpr int kMptr = 128;
constexpr int kPrp1 = 192;
constexpr int kPrp2 = 256;
constexpr int kTokens = 320;
constexpr int kMode = 352;
constexpr int kGroup = 360;
constexpr int kHasValid = 368;
constexpr int kReserved0 = 376;
constexpr int kR = 384;
constexpr int kKTop = 400;
constexpr int kLocal = 416;
constexpr int kInlineTokens = 432;
constexpr int kCrc32c = 448;
constexpr int kScaleLog2e = 480;
}  // namespace attnsubmit_bit

struct AttnFetch {
  std::uint8_t opcode;
  std::uint8_t flags;
  std::uint16_t cid;
  std::uint32_t nsid;
  std::uint32_t reserved0[2];
  std::uint64_t mptr;
  std::uint64_t prp1;
  std::uint64_t prp2;
  std::uint32_t ticket;
  std::uint32_t data_bytes;
  std::uint32_t reserved1[4];
};
static_assert(sizeof(AttnFetch) == 64, "size");
static_assert(offsetof(AttnFetch, opcode) == 0, "offset");
static_assert(offsetof(AttnFetch, flags) == 1, "offset");
static_assert(offsetof(AttnFetch, cid) == 2, "offset");
static_assert(offsetof(AttnFetch, nsid) == 4, "offset");
static_assert(offsetof(AttnFetch, reserved0) == 8, "offset");
static_assert(offsetof(AttnFetch, mptr) == 16, "offset");
static_assert(offsetof(AttnFetch, prp1) == 24, "offset");
static_assert(offsetof(AttnFetch, prp2) == 32, "offset");
static_assert(offsetof(AttnFetch, ticket) == 40, "offset");
static_assert(offsetof(AttnFetch, data_bytes) == 44, "offset");
static_assert(offsetof(AttnFetch, reserved1) == 48, "offset");
namespace attnfetch_bit {
constexpr int kOpcode = 0;
constexpr int kFlags = 8;
constexpr int kCid = 16;
constexpr int kNsid = 32;
constexpr int kReserved0 = 64;
constexpr int kMptr = 128;
constexpr int kPrp1 = 192;
constexpr int kPrp2 = 256;
constexpr int kTicket = 320;
constexpr int kDataBytes = 352;
constexpr int kReserved1 = 384;
}  // namespace attnfetch_bit

}  // namespace abi
}  // namespace kvdrive
