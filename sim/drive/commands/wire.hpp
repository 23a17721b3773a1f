// SPDX-License-Identifier: Apache-2.0
// Generated from abi/nvme.toml by abi/generate.py; do not edit.
// clang-format off
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvdrive {
namespace nvme {

constexpr int kVersion21 = 131328;
constexpr int kLbaBytes = 4096;
constexpr int kIdentifyBytes = 4096;
constexpr int kMaxNsid = 4;
constexpr int kNsidMemory = 2;
constexpr int kNsidValues = 4;
constexpr int kMaxKeyBytes = 16;
constexpr int kMaxValueBytes = 1073741824;
constexpr int kMaxUploads = 64;
constexpr int kMaxFfnHidden = 8192;
constexpr int kMaxFfnTokens = 64;
constexpr int kMaxAttnRows = 64;
constexpr int kFfnListed = 128;
constexpr std::uint32_t kNsidAll = 4294967295;
constexpr int kMemoryAlignment = 4;
constexpr int kMaxMemoryRanges = 1;
constexpr int kMaxMemoryRangeSets = 16;
constexpr int kAsyncEventLimit = 4;
constexpr int kAbortLimit = 4;
constexpr int kAnaGroup = 1;
constexpr int kMaxCopyRanges = 128;
constexpr int kMaxCopyRangeBlocks = 256;
constexpr int kMaxCopyBlocks = 4096;
constexpr int kRoomKelvin = 298;
constexpr int kWarningKelvin = 343;
constexpr int kCriticalKelvin = 353;
constexpr int kRingMagic = 1735289202;
constexpr int kRingVersion = 1;
constexpr int kRingRegisters = 4096;
constexpr int kRingHeap = 12288;

enum Property : std::uint32_t {
  kCap = 0x0,
  kVs = 0x8,
  kIntms = 0xc,
  kIntmc = 0x10,
  kCc = 0x14,
  kCsts = 0x1c,
  kNssr = 0x20,
  kAqa = 0x24,
  kAsq = 0x28,
  kAcq = 0x30,
  kDoorbells = 0x1000,
};

enum AdminOpcode : std::uint32_t {
  kDeleteSq = 0x0,
  kCreateSq = 0x1,
  kGetLogPage = 0x2,
  kDeleteCq = 0x4,
  kCreateCq = 0x5,
  kIdentify = 0x6,
  kAbort = 0x8,
  kSetFeatures = 0x9,
  kGetFeatures = 0xa,
  kAsyncEventRequest = 0xc,
  kKeepAlive = 0x18,
  kFabrics = 0x7f,
  kFormatNvm = 0x80,
  kSanitize = 0x84,
  kLoadProgram = 0x85,
  kProgramActivation = 0x88,
  kMemoryRangeSet = 0x89,
};

enum NvmOpcode : std::uint32_t {
  kNvmFlush = 0x0,
  kNvmWrite = 0x1,
  kNvmRead = 0x2,
  kNvmCompare = 0x5,
  kNvmWriteZeroes = 0x8,
  kNvmDatasetManagement = 0x9,
  kNvmVerify = 0xc,
  kNvmCopy = 0x19,
};

enum RowFormat : std::uint32_t {
  kBinary16 = 0x0,
  kInt8 = 0x1,
  kInt4 = 0x2,
  kFp8 = 0x3,
};

enum ValueOpcode : std::uint32_t {
  kValueStore = 0x1,
  kValueRetrieve = 0x2,
  kValueList = 0x6,
  kValueDelete = 0x10,
  kValueExist = 0x14,
};

enum StoreOption : std::uint32_t {
  kStoreMustExist = 0x1,
  kStoreMustNotExist = 0x2,
  kStoreUncompressed = 0x4,
  kStoreFua = 0x40,
  kStorePart = 0x80,
};

enum RetrieveOption : std::uint32_t {
  kRetrieveRaw = 0x1,
  kRetrieveUrgent = 0x20,
  kRetrieveAhead = 0x40,
  kRetrieveOffset = 0x80,
};

enum MemoryOpcode : std::uint32_t {
  kMemoryRead = 0x2,
  kMemoryFill = 0x4,
  kMemoryWrite = 0x5,
};

enum ProgramOpcode : std::uint32_t {
  kExecuteProgram = 0x1,
};

enum FfnLayout : std::uint32_t {
  kFfnDown = 0x1,
  kFfnUpDown = 0x2,
  kFfnGateUpDown = 0x3,
  kFfnExpert = 0x4,
};

enum FfnActivation : std::uint32_t {
  kFfnGiven = 0x0,
  kFfnRelu = 0x1,
  kFfnSilu = 0x2,
};

enum CommandSet : std::uint32_t {
  kCsiNvm = 0x0,
  kCsiKeyValue = 0x1,
  kCsiMemory = 0x3,
  kCsiPrograms = 0x4,
};

enum Program : std::uint32_t {
  kProgramDense = 0x0,
  kProgramSparf = 0x1,
  kProgramPartial = 0x2,
  kProgramGroups = 0x3,
  kProgramFfn = 0x4,
};

enum Cns : std::uint32_t {
  kCnsNamespace = 0x0,
  kCnsController = 0x1,
  kCnsActiveNamespaces = 0x2,
  kCnsNamespaceDescriptors = 0x3,
  kCnsCsiNamespace = 0x5,
  kCnsCsiController = 0x6,
  kCnsCsiActiveNamespaces = 0x7,
  kCnsIndependentNamespace = 0x8,
  kCnsCommandSets = 0x1c,
};

enum LogPage : std::uint32_t {
  kLogSupportedPages = 0x0,
  kLogErrors = 0x1,
  kLogSmart = 0x2,
  kLogFirmware = 0x3,
  kLogChangedNamespaces = 0x4,
  kLogCommandEffects = 0x5,
  kLogAna = 0xc,
  kLogFeatureEffects = 0x12,
  kLogSanitizeStatus = 0x81,
  kLogStatistics = 0xc0,
  kLogPrograms = 0xc1,
  kLogSessions = 0xc2,
};

enum Feature : std::uint32_t {
  kFeatureArbitration = 0x1,
  kFeaturePower = 0x2,
  kFeatureTemperatureThreshold = 0x4,
  kFeatureErrorRecovery = 0x5,
  kFeatureWriteCache = 0x6,
  kFeatureQueues = 0x7,
  kFeatureInterruptCoalescing = 0x8,
  kFeatureInterruptVector = 0x9,
  kFeatureWriteAtomicity = 0xa,
  kFeatureAsyncEvents = 0xb,
  kFeatureTimestamp = 0xe,
  kFeatureKeepAlive = 0xf,
  kFeatureHostBehavior = 0x16,
  kFeatureCommandSetProfile = 0x19,
  kFeatureKeyValue = 0x20,
  kFeatureHostId = 0x81,
};

enum StatusCode : std::uint32_t {
  kScInvalidCommandId = 0x3,
  kScDataTransfer = 0x4,
  kScAborted = 0x7,
  kScAbortedQueueDeleted = 0x8,
  kScCommandSequence = 0xc,
  kScBadSglSegment = 0xd,
  kScBadSglCount = 0xe,
  kScBadSglType = 0x11,
  kScSanitizeFailed = 0x1c,
  kScNamespaceWriteProtected = 0x20,
  kScBadPrpOffset = 0x13,
  kScLbaOutOfRange = 0x80,
  kScInvalidValueSize = 0x85,
  kScInvalidKeySize = 0x86,
  kScKeyDoesNotExist = 0x87,
  kScUnrecoveredError = 0x88,
  kScKeyExists = 0x89,
  kScBadCompletionQueue = 0x100,
  kScBadQueueId = 0x101,
  kScBadQueueSize = 0x102,
  kScAbortLimit = 0x103,
  kScAsyncEventLimit = 0x105,
  kScBadLogPage = 0x109,
  kScBadFormat = 0x10a,
  kScBadQueueDeletion = 0x10c,
  kScFeatureNotSaveable = 0x10d,
  kScFeatureNotChangeable = 0x10e,
  kScFeatureNotNamespaceSpecific = 0x10f,
  kScCommandSizeLimit = 0x183,
  kScCompareFailure = 0x285,
  kScCommandSetRejected = 0x12b,
  kScBadCommandSet = 0x12c,
  kScInvalidMemoryNamespace = 0x18b,
  kScInvalidMemoryRangeSet = 0x18c,
  kScInvalidMemoryRangeSetId = 0x18d,
  kScInvalidProgramIndex = 0x18f,
  kScMemoryRangesExceeded = 0x191,
  kScMemoryRangeSetsExceeded = 0x192,
  kScProgramNotActivated = 0x198,
  kScProgramNotDownloadable = 0x19a,
};

struct KvRead {
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
  std::uint32_t tokens;
  std::uint32_t row_bytes;
  std::uint8_t kind;
  std::uint8_t reserved0[3];
  std::uint32_t reserved1[2];
};
static_assert(sizeof(KvRead) == 64, "size");
static_assert(offsetof(KvRead, opcode) == 0, "offset");
static_assert(offsetof(KvRead, flags) == 1, "offset");
static_assert(offsetof(KvRead, cid) == 2, "offset");
static_assert(offsetof(KvRead, nsid) == 4, "offset");
static_assert(offsetof(KvRead, session) == 8, "offset");
static_assert(offsetof(KvRead, head) == 12, "offset");
static_assert(offsetof(KvRead, heads) == 13, "offset");
static_assert(offsetof(KvRead, layer) == 14, "offset");
static_assert(offsetof(KvRead, mptr) == 16, "offset");
static_assert(offsetof(KvRead, prp1) == 24, "offset");
static_assert(offsetof(KvRead, prp2) == 32, "offset");
static_assert(offsetof(KvRead, first_token) == 40, "offset");
static_assert(offsetof(KvRead, tokens) == 44, "offset");
static_assert(offsetof(KvRead, row_bytes) == 48, "offset");
static_assert(offsetof(KvRead, kind) == 52, "offset");
static_assert(offsetof(KvRead, reserved0) == 53, "offset");
static_assert(offsetof(KvRead, reserved1) == 56, "offset");

struct SessionRemove {
  std::uint8_t opcode;
  std::uint8_t flags;
  std::uint16_t cid;
  std::uint32_t nsid;
  std::uint32_t session;
  std::uint32_t reserved0;
  std::uint64_t mptr;
  std::uint64_t prp1;
  std::uint64_t prp2;
  std::uint32_t first_token;
  std::uint32_t tokens;
  std::uint32_t before;
  std::uint32_t layers;
  std::uint32_t reserved1[2];
};
static_assert(sizeof(SessionRemove) == 64, "size");
static_assert(offsetof(SessionRemove, opcode) == 0, "offset");
static_assert(offsetof(SessionRemove, flags) == 1, "offset");
static_assert(offsetof(SessionRemove, cid) == 2, "offset");
static_assert(offsetof(SessionRemove, nsid) == 4, "offset");
static_assert(offsetof(SessionRemove, session) == 8, "offset");
static_assert(offsetof(SessionRemove, reserved0) == 12, "offset");
static_assert(offsetof(SessionRemove, mptr) == 16, "offset");
static_assert(offsetof(SessionRemove, prp1) == 24, "offset");
static_assert(offsetof(SessionRemove, prp2) == 32, "offset");
static_assert(offsetof(SessionRemove, first_token) == 40, "offset");
static_assert(offsetof(SessionRemove, tokens) == 44, "offset");
static_assert(offsetof(SessionRemove, before) == 48, "offset");
static_assert(offsetof(SessionRemove, layers) == 52, "offset");
static_assert(offsetof(SessionRemove, reserved1) == 56, "offset");

struct ValueCommand {
  std::uint8_t opcode;
  std::uint8_t flags;
  std::uint16_t cid;
  std::uint32_t nsid;
  std::uint8_t key_low[8];
  std::uint64_t mptr;
  std::uint64_t prp1;
  std::uint64_t prp2;
  std::uint32_t size;
  std::uint8_t key_bytes;
  std::uint8_t options;
  std::uint16_t upload;
  std::uint32_t offset;
  std::uint32_t total;
  std::uint8_t key_high[8];
};
static_assert(sizeof(ValueCommand) == 64, "size");
static_assert(offsetof(ValueCommand, opcode) == 0, "offset");
static_assert(offsetof(ValueCommand, flags) == 1, "offset");
static_assert(offsetof(ValueCommand, cid) == 2, "offset");
static_assert(offsetof(ValueCommand, nsid) == 4, "offset");
static_assert(offsetof(ValueCommand, key_low) == 8, "offset");
static_assert(offsetof(ValueCommand, mptr) == 16, "offset");
static_assert(offsetof(ValueCommand, prp1) == 24, "offset");
static_assert(offsetof(ValueCommand, prp2) == 32, "offset");
static_assert(offsetof(ValueCommand, size) == 40, "offset");
static_assert(offsetof(ValueCommand, key_bytes) == 44, "offset");
static_assert(offsetof(ValueCommand, options) == 45, "offset");
static_assert(offsetof(ValueCommand, upload) == 46, "offset");
static_assert(offsetof(ValueCommand, offset) == 48, "offset");
static_assert(offsetof(ValueCommand, total) == 52, "offset");
static_assert(offsetof(ValueCommand, key_high) == 56, "offset");

struct FfnSubmit {
  std::uint8_t opcode;
  std::uint8_t flags;
  std::uint16_t cid;
  std::uint32_t nsid;
  std::uint8_t key_low[8];
  std::uint64_t mptr;
  std::uint64_t prp1;
  std::uint64_t prp2;
  std::uint32_t offset;
  std::uint16_t hidden;
  std::uint16_t neurons;
  std::uint8_t layout;
  std::uint8_t activation;
  std::uint8_t tokens;
  std::uint8_t key_bytes;
  std::uint32_t crc32c;
  std::uint8_t key_high[8];
};
static_assert(sizeof(FfnSubmit) == 64, "size");
static_assert(offsetof(FfnSubmit, opcode) == 0, "offset");
static_assert(offsetof(FfnSubmit, flags) == 1, "offset");
static_assert(offsetof(FfnSubmit, cid) == 2, "offset");
static_assert(offsetof(FfnSubmit, nsid) == 4, "offset");
static_assert(offsetof(FfnSubmit, key_low) == 8, "offset");
static_assert(offsetof(FfnSubmit, mptr) == 16, "offset");
static_assert(offsetof(FfnSubmit, prp1) == 24, "offset");
static_assert(offsetof(FfnSubmit, prp2) == 32, "offset");
static_assert(offsetof(FfnSubmit, offset) == 40, "offset");
static_assert(offsetof(FfnSubmit, hidden) == 44, "offset");
static_assert(offsetof(FfnSubmit, neurons) == 46, "offset");
static_assert(offsetof(FfnSubmit, layout) == 48, "offset");
static_assert(offsetof(FfnSubmit, activation) == 49, "offset");
static_assert(offsetof(FfnSubmit, tokens) == 50, "offset");
static_assert(offsetof(FfnSubmit, key_bytes) == 51, "offset");
static_assert(offsetof(FfnSubmit, crc32c) == 52, "offset");
static_assert(offsetof(FfnSubmit, key_high) == 56, "offset");

struct AttnRows {
  std::uint8_t opcode;
  std::uint8_t flags;
  std::uint16_t cid;
  std::uint32_t nsid;
  std::uint32_t reserved0[2];
  std::uint64_t mptr;
  std::uint64_t prp1;
  std::uint64_t prp2;
  std::uint32_t rows;
  std::uint32_t data_bytes;
  std::uint32_t crc32c;
  std::uint32_t reserved1[3];
};
static_assert(sizeof(AttnRows) == 64, "size");
static_assert(offsetof(AttnRows, opcode) == 0, "offset");
static_assert(offsetof(AttnRows, flags) == 1, "offset");
static_assert(offsetof(AttnRows, cid) == 2, "offset");
static_assert(offsetof(AttnRows, nsid) == 4, "offset");
static_assert(offsetof(AttnRows, reserved0) == 8, "offset");
static_assert(offsetof(AttnRows, mptr) == 16, "offset");
static_assert(offsetof(AttnRows, prp1) == 24, "offset");
static_assert(offsetof(AttnRows, prp2) == 32, "offset");
static_assert(offsetof(AttnRows, rows) == 40, "offset");
static_assert(offsetof(AttnRows, data_bytes) == 44, "offset");
static_assert(offsetof(AttnRows, crc32c) == 48, "offset");
static_assert(offsetof(AttnRows, reserved1) == 52, "offset");

struct AttnRow {
  std::uint32_t reserved0[2];
  std::uint32_t session;
  std::uint8_t head;
  std::uint8_t heads;
  std::uint16_t layer;
  std::uint32_t data_bytes;
  std::uint32_t reserved1[5];
  std::uint32_t tokens;
  std::uint8_t mode;
  std::uint8_t group;
  std::uint8_t has_valid;
  std::uint8_t reserved2;
  std::uint16_t r;
  std::uint16_t k_top;
  std::uint16_t local;
  std::uint16_t inline_tokens;
  std::uint32_t reserved3;
  std::uint32_t scale_log2e;
};
static_assert(sizeof(AttnRow) == 64, "size");
static_assert(offsetof(AttnRow, reserved0) == 0, "offset");
static_assert(offsetof(AttnRow, session) == 8, "offset");
static_assert(offsetof(AttnRow, head) == 12, "offset");
static_assert(offsetof(AttnRow, heads) == 13, "offset");
static_assert(offsetof(AttnRow, layer) == 14, "offset");
static_assert(offsetof(AttnRow, data_bytes) == 16, "offset");
static_assert(offsetof(AttnRow, reserved1) == 20, "offset");
static_assert(offsetof(AttnRow, tokens) == 40, "offset");
static_assert(offsetof(AttnRow, mode) == 44, "offset");
static_assert(offsetof(AttnRow, group) == 45, "offset");
static_assert(offsetof(AttnRow, has_valid) == 46, "offset");
static_assert(offsetof(AttnRow, reserved2) == 47, "offset");
static_assert(offsetof(AttnRow, r) == 48, "offset");
static_assert(offsetof(AttnRow, k_top) == 50, "offset");
static_assert(offsetof(AttnRow, local) == 52, "offset");
static_assert(offsetof(AttnRow, inline_tokens) == 54, "offset");
static_assert(offsetof(AttnRow, reserved3) == 56, "offset");
static_assert(offsetof(AttnRow, scale_log2e) == 60, "offset");

struct AttnRowResult {
  std::uint32_t status;
  std::uint32_t engine_status;
  std::uint32_t data_bytes;
  std::uint32_t reserved;
};
static_assert(sizeof(AttnRowResult) == 16, "size");
static_assert(offsetof(AttnRowResult, status) == 0, "offset");
static_assert(offsetof(AttnRowResult, engine_status) == 4, "offset");
static_assert(offsetof(AttnRowResult, data_bytes) == 8, "offset");
static_assert(offsetof(AttnRowResult, reserved) == 12, "offset");

struct MemoryRange {
  std::uint32_t nsid;
  std::uint32_t length;
  std::uint64_t start;
  std::uint64_t reserved[2];
};
static_assert(sizeof(MemoryRange) == 32, "size");
static_assert(offsetof(MemoryRange, nsid) == 0, "offset");
static_assert(offsetof(MemoryRange, length) == 4, "offset");
static_assert(offsetof(MemoryRange, start) == 8, "offset");
static_assert(offsetof(MemoryRange, reserved) == 16, "offset");

struct DatasetRange {
  std::uint32_t attributes;
  std::uint32_t blocks;
  std::uint64_t first_block;
};
static_assert(sizeof(DatasetRange) == 16, "size");
static_assert(offsetof(DatasetRange, attributes) == 0, "offset");
static_assert(offsetof(DatasetRange, blocks) == 4, "offset");
static_assert(offsetof(DatasetRange, first_block) == 8, "offset");

struct CopyRange {
  std::uint64_t reserved0;
  std::uint64_t first_block;
  std::uint16_t blocks;
  std::uint16_t reserved1[3];
  std::uint64_t reserved2;
};
static_assert(sizeof(CopyRange) == 32, "size");
static_assert(offsetof(CopyRange, reserved0) == 0, "offset");
static_assert(offsetof(CopyRange, first_block) == 8, "offset");
static_assert(offsetof(CopyRange, blocks) == 16, "offset");
static_assert(offsetof(CopyRange, reserved1) == 18, "offset");
static_assert(offsetof(CopyRange, reserved2) == 24, "offset");

struct SglDescriptor {
  std::uint64_t address;
  std::uint32_t length;
  std::uint8_t reserved[3];
  std::uint8_t kind;
};
static_assert(sizeof(SglDescriptor) == 16, "size");
static_assert(offsetof(SglDescriptor, address) == 0, "offset");
static_assert(offsetof(SglDescriptor, length) == 8, "offset");
static_assert(offsetof(SglDescriptor, reserved) == 12, "offset");
static_assert(offsetof(SglDescriptor, kind) == 15, "offset");

struct RingSegment {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t bytes;
  std::uint32_t device_event;
  std::uint32_t device_sleeps;
  std::uint32_t host_event;
  std::uint32_t host_waiters;
  std::uint64_t reserved[4];
};
static_assert(sizeof(RingSegment) == 64, "size");
static_assert(offsetof(RingSegment, magic) == 0, "offset");
static_assert(offsetof(RingSegment, version) == 4, "offset");
static_assert(offsetof(RingSegment, bytes) == 8, "offset");
static_assert(offsetof(RingSegment, device_event) == 16, "offset");
static_assert(offsetof(RingSegment, device_sleeps) == 20, "offset");
static_assert(offsetof(RingSegment, host_event) == 24, "offset");
static_assert(offsetof(RingSegment, host_waiters) == 28, "offset");
static_assert(offsetof(RingSegment, reserved) == 32, "offset");

struct IdentifyController {
  std::uint16_t vid;
  std::uint16_t ssvid;
  std::uint8_t sn[20];
  std::uint8_t mn[40];
  std::uint8_t fr[8];
  std::uint8_t rab;
  std::uint8_t ieee[3];
  std::uint8_t cmic;
  std::uint8_t mdts;
  std::uint16_t cntlid;
  std::uint32_t ver;
  std::uint32_t rtd3r;
  std::uint32_t rtd3e;
  std::uint32_t oaes;
  std::uint32_t ctratt;
  std::uint16_t rrls;
  std::uint8_t bpcap;
  std::uint8_t reserved0;
  std::uint32_t nssl;
  std::uint8_t reserved1[2];
  std::uint8_t plsi;
  std::uint8_t cntrltype;
  std::uint8_t fguid[16];
  std::uint16_t crdt[3];
  std::uint8_t crcap;
  std::uint8_t reserved2[118];
  std::uint8_t nvmsr;
  std::uint8_t vwci;
  std::uint8_t mec;
  std::uint16_t oacs;
  std::uint8_t acl;
  std::uint8_t aerl;
  std::uint8_t frmw;
  std::uint8_t lpa;
  std::uint8_t elpe;
  std::uint8_t npss;
  std::uint8_t avscc;
  std::uint8_t apsta;
  std::uint16_t wctemp;
  std::uint16_t cctemp;
  std::uint16_t mtfa;
  std::uint32_t hmpre;
  std::uint32_t hmmin;
  std::uint64_t tnvmcap[2];
  std::uint64_t unvmcap[2];
  std::uint32_t rpmbs;
  std::uint16_t edstt;
  std::uint8_t dsto;
  std::uint8_t fwug;
  std::uint16_t kas;
  std::uint16_t hctma;
  std::uint16_t mntmt;
  std::uint16_t mxtmt;
  std::uint32_t sanicap;
  std::uint32_t hmminds;
  std::uint16_t hmmaxd;
  std::uint16_t nsetidmax;
  std::uint16_t endgidmax;
  std::uint8_t anatt;
  std::uint8_t anacap;
  std::uint32_t anagrpmax;
  std::uint32_t nanagrpid;
  std::uint32_t pels;
  std::uint16_t domain_id;
  std::uint8_t kpioc;
  std::uint8_t reserved3;
  std::uint16_t mptfawr;
  std::uint8_t reserved4[6];
  std::uint64_t megcap[2];
  std::uint8_t tmpthha;
  std::uint8_t reserved5[127];
  std::uint8_t sqes;
  std::uint8_t cqes;
  std::uint16_t maxcmd;
  std::uint32_t nn;
  std::uint16_t oncs;
  std::uint16_t fuses;
  std::uint8_t fna;
  std::uint8_t vwc;
  std::uint16_t awun;
  std::uint16_t awupf;
  std::uint8_t icsvscc;
  std::uint8_t nwpc;
  std::uint16_t acwu;
  std::uint16_t cdfs;
  std::uint32_t sgls;
  std::uint32_t mnan;
  std::uint64_t maxdna[2];
  std::uint32_t maxcna;
  std::uint32_t oaqd;
  std::uint8_t rhiri;
  std::uint8_t hirt;
  std::uint16_t cmmrtd;
  std::uint16_t nmmrtd;
  std::uint8_t minmrtg;
  std::uint8_t maxmrtg;
  std::uint8_t trattr;
  std::uint8_t reserved6[191];
  std::uint8_t subnqn[256];
  std::uint8_t reserved7[768];
  std::uint32_t ioccsz;
  std::uint32_t iorcsz;
  std::uint16_t icdoff;
  std::uint8_t fcatt;
  std::uint8_t msdbd;
  std::uint16_t ofcs;
  std::uint8_t dctype;
  std::uint8_t reserved8[241];
  std::uint8_t psd[1024];
  std::uint8_t engine[16];
  std::uint8_t preset[32];
  std::uint32_t engine_mhz;
  std::uint32_t abi_version;
  std::uint64_t slm_bytes;
  std::uint64_t kv_capacity_bytes;
  std::uint8_t vendor_reserved[952];
};
static_assert(sizeof(IdentifyController) == 4096, "size");
static_assert(offsetof(IdentifyController, vid) == 0, "offset");
static_assert(offsetof(IdentifyController, ssvid) == 2, "offset");
static_assert(offsetof(IdentifyController, sn) == 4, "offset");
static_assert(offsetof(IdentifyController, mn) == 24, "offset");
static_assert(offsetof(IdentifyController, fr) == 64, "offset");
static_assert(offsetof(IdentifyController, rab) == 72, "offset");
static_assert(offsetof(IdentifyController, ieee) == 73, "offset");
static_assert(offsetof(IdentifyController, cmic) == 76, "offset");
static_assert(offsetof(IdentifyController, mdts) == 77, "offset");
static_assert(offsetof(IdentifyController, cntlid) == 78, "offset");
static_assert(offsetof(IdentifyController, ver) == 80, "offset");
static_assert(offsetof(IdentifyController, rtd3r) == 84, "offset");
static_assert(offsetof(IdentifyController, rtd3e) == 88, "offset");
static_assert(offsetof(IdentifyController, oaes) == 92, "offset");
static_assert(offsetof(IdentifyController, ctratt) == 96, "offset");
static_assert(offsetof(IdentifyController, rrls) == 100, "offset");
static_assert(offsetof(IdentifyController, bpcap) == 102, "offset");
static_assert(offsetof(IdentifyController, reserved0) == 103, "offset");
static_assert(offsetof(IdentifyController, nssl) == 104, "offset");
static_assert(offsetof(IdentifyController, reserved1) == 108, "offset");
static_assert(offsetof(IdentifyController, plsi) == 110, "offset");
static_assert(offsetof(IdentifyController, cntrltype) == 111, "offset");
static_assert(offsetof(IdentifyController, fguid) == 112, "offset");
static_assert(offsetof(IdentifyController, crdt) == 128, "offset");
static_assert(offsetof(IdentifyController, crcap) == 134, "offset");
static_assert(offsetof(IdentifyController, reserved2) == 135, "offset");
static_assert(offsetof(IdentifyController, nvmsr) == 253, "offset");
static_assert(offsetof(IdentifyController, vwci) == 254, "offset");
static_assert(offsetof(IdentifyController, mec) == 255, "offset");
static_assert(offsetof(IdentifyController, oacs) == 256, "offset");
static_assert(offsetof(IdentifyController, acl) == 258, "offset");
static_assert(offsetof(IdentifyController, aerl) == 259, "offset");
static_assert(offsetof(IdentifyController, frmw) == 260, "offset");
static_assert(offsetof(IdentifyController, lpa) == 261, "offset");
static_assert(offsetof(IdentifyController, elpe) == 262, "offset");
static_assert(offsetof(IdentifyController, npss) == 263, "offset");
static_assert(offsetof(IdentifyController, avscc) == 264, "offset");
static_assert(offsetof(IdentifyController, apsta) == 265, "offset");
static_assert(offsetof(IdentifyController, wctemp) == 266, "offset");
static_assert(offsetof(IdentifyController, cctemp) == 268, "offset");
static_assert(offsetof(IdentifyController, mtfa) == 270, "offset");
static_assert(offsetof(IdentifyController, hmpre) == 272, "offset");
static_assert(offsetof(IdentifyController, hmmin) == 276, "offset");
static_assert(offsetof(IdentifyController, tnvmcap) == 280, "offset");
static_assert(offsetof(IdentifyController, unvmcap) == 296, "offset");
static_assert(offsetof(IdentifyController, rpmbs) == 312, "offset");
static_assert(offsetof(IdentifyController, edstt) == 316, "offset");
static_assert(offsetof(IdentifyController, dsto) == 318, "offset");
static_assert(offsetof(IdentifyController, fwug) == 319, "offset");
static_assert(offsetof(IdentifyController, kas) == 320, "offset");
static_assert(offsetof(IdentifyController, hctma) == 322, "offset");
static_assert(offsetof(IdentifyController, mntmt) == 324, "offset");
static_assert(offsetof(IdentifyController, mxtmt) == 326, "offset");
static_assert(offsetof(IdentifyController, sanicap) == 328, "offset");
static_assert(offsetof(IdentifyController, hmminds) == 332, "offset");
static_assert(offsetof(IdentifyController, hmmaxd) == 336, "offset");
static_assert(offsetof(IdentifyController, nsetidmax) == 338, "offset");
static_assert(offsetof(IdentifyController, endgidmax) == 340, "offset");
static_assert(offsetof(IdentifyController, anatt) == 342, "offset");
static_assert(offsetof(IdentifyController, anacap) == 343, "offset");
static_assert(offsetof(IdentifyController, anagrpmax) == 344, "offset");
static_assert(offsetof(IdentifyController, nanagrpid) == 348, "offset");
static_assert(offsetof(IdentifyController, pels) == 352, "offset");
static_assert(offsetof(IdentifyController, domain_id) == 356, "offset");
static_assert(offsetof(IdentifyController, kpioc) == 358, "offset");
static_assert(offsetof(IdentifyController, reserved3) == 359, "offset");
static_assert(offsetof(IdentifyController, mptfawr) == 360, "offset");
static_assert(offsetof(IdentifyController, reserved4) == 362, "offset");
static_assert(offsetof(IdentifyController, megcap) == 368, "offset");
static_assert(offsetof(IdentifyController, tmpthha) == 384, "offset");
static_assert(offsetof(IdentifyController, reserved5) == 385, "offset");
static_assert(offsetof(IdentifyController, sqes) == 512, "offset");
static_assert(offsetof(IdentifyController, cqes) == 513, "offset");
static_assert(offsetof(IdentifyController, maxcmd) == 514, "offset");
static_assert(offsetof(IdentifyController, nn) == 516, "offset");
static_assert(offsetof(IdentifyController, oncs) == 520, "offset");
static_assert(offsetof(IdentifyController, fuses) == 522, "offset");
static_assert(offsetof(IdentifyController, fna) == 524, "offset");
static_assert(offsetof(IdentifyController, vwc) == 525, "offset");
static_assert(offsetof(IdentifyController, awun) == 526, "offset");
static_assert(offsetof(IdentifyController, awupf) == 528, "offset");
static_assert(offsetof(IdentifyController, icsvscc) == 530, "offset");
static_assert(offsetof(IdentifyController, nwpc) == 531, "offset");
static_assert(offsetof(IdentifyController, acwu) == 532, "offset");
static_assert(offsetof(IdentifyController, cdfs) == 534, "offset");
static_assert(offsetof(IdentifyController, sgls) == 536, "offset");
static_assert(offsetof(IdentifyController, mnan) == 540, "offset");
static_assert(offsetof(IdentifyController, maxdna) == 544, "offset");
static_assert(offsetof(IdentifyController, maxcna) == 560, "offset");
static_assert(offsetof(IdentifyController, oaqd) == 564, "offset");
static_assert(offsetof(IdentifyController, rhiri) == 568, "offset");
static_assert(offsetof(IdentifyController, hirt) == 569, "offset");
static_assert(offsetof(IdentifyController, cmmrtd) == 570, "offset");
static_assert(offsetof(IdentifyController, nmmrtd) == 572, "offset");
static_assert(offsetof(IdentifyController, minmrtg) == 574, "offset");
static_assert(offsetof(IdentifyController, maxmrtg) == 575, "offset");
static_assert(offsetof(IdentifyController, trattr) == 576, "offset");
static_assert(offsetof(IdentifyController, reserved6) == 577, "offset");
static_assert(offsetof(IdentifyController, subnqn) == 768, "offset");
static_assert(offsetof(IdentifyController, reserved7) == 1024, "offset");
static_assert(offsetof(IdentifyController, ioccsz) == 1792, "offset");
static_assert(offsetof(IdentifyController, iorcsz) == 1796, "offset");
static_assert(offsetof(IdentifyController, icdoff) == 1800, "offset");
static_assert(offsetof(IdentifyController, fcatt) == 1802, "offset");
static_assert(offsetof(IdentifyController, msdbd) == 1803, "offset");
static_assert(offsetof(IdentifyController, ofcs) == 1804, "offset");
static_assert(offsetof(IdentifyController, dctype) == 1806, "offset");
static_assert(offsetof(IdentifyController, reserved8) == 1807, "offset");
static_assert(offsetof(IdentifyController, psd) == 2048, "offset");
static_assert(offsetof(IdentifyController, engine) == 3072, "offset");
static_assert(offsetof(IdentifyController, preset) == 3088, "offset");
static_assert(offsetof(IdentifyController, engine_mhz) == 3120, "offset");
static_assert(offsetof(IdentifyController, abi_version) == 3124, "offset");
static_assert(offsetof(IdentifyController, slm_bytes) == 3128, "offset");
static_assert(offsetof(IdentifyController, kv_capacity_bytes) == 3136, "offset");
static_assert(offsetof(IdentifyController, vendor_reserved) == 3144, "offset");

struct LbaFormat {
  std::uint16_t metadata_bytes;
  std::uint8_t data_bits;
  std::uint8_t performance;
};
static_assert(sizeof(LbaFormat) == 4, "size");
static_assert(offsetof(LbaFormat, metadata_bytes) == 0, "offset");
static_assert(offsetof(LbaFormat, data_bits) == 2, "offset");
static_assert(offsetof(LbaFormat, performance) == 3, "offset");

struct IdentifyNamespace {
  std::uint64_t nsze;
  std::uint64_t ncap;
  std::uint64_t nuse;
  std::uint8_t nsfeat;
  std::uint8_t nlbaf;
  std::uint8_t flbas;
  std::uint8_t mc;
  std::uint8_t dpc;
  std::uint8_t dps;
  std::uint8_t nmic;
  std::uint8_t rescap;
  std::uint8_t fpi;
  std::uint8_t dlfeat;
  std::uint16_t nawun;
  std::uint16_t nawupf;
  std::uint16_t nacwu;
  std::uint16_t nabsn;
  std::uint16_t nabo;
  std::uint16_t nabspf;
  std::uint16_t noiob;
  std::uint64_t nvmcap[2];
  std::uint16_t npwg;
  std::uint16_t npwa;
  std::uint16_t npdg;
  std::uint16_t npda;
  std::uint16_t nows;
  std::uint16_t mssrl;
  std::uint32_t mcl;
  std::uint8_t msrc;
  std::uint8_t kpios;
  std::uint8_t nulbaf;
  std::uint8_t reserved0;
  std::uint32_t kpiodaag;
  std::uint8_t reserved1[4];
  std::uint32_t anagrpid;
  std::uint8_t reserved2[3];
  std::uint8_t nsattr;
  std::uint16_t nvmsetid;
  std::uint16_t endgid;
  std::uint8_t nguid[16];
  std::uint8_t eui64[8];
  std::uint32_t lbaf[64];
  std::uint8_t reserved3[3712];
};
static_assert(sizeof(IdentifyNamespace) == 4096, "size");
static_assert(offsetof(IdentifyNamespace, nsze) == 0, "offset");
static_assert(offsetof(IdentifyNamespace, ncap) == 8, "offset");
static_assert(offsetof(IdentifyNamespace, nuse) == 16, "offset");
static_assert(offsetof(IdentifyNamespace, nsfeat) == 24, "offset");
static_assert(offsetof(IdentifyNamespace, nlbaf) == 25, "offset");
static_assert(offsetof(IdentifyNamespace, flbas) == 26, "offset");
static_assert(offsetof(IdentifyNamespace, mc) == 27, "offset");
static_assert(offsetof(IdentifyNamespace, dpc) == 28, "offset");
static_assert(offsetof(IdentifyNamespace, dps) == 29, "offset");
static_assert(offsetof(IdentifyNamespace, nmic) == 30, "offset");
static_assert(offsetof(IdentifyNamespace, rescap) == 31, "offset");
static_assert(offsetof(IdentifyNamespace, fpi) == 32, "offset");
static_assert(offsetof(IdentifyNamespace, dlfeat) == 33, "offset");
static_assert(offsetof(IdentifyNamespace, nawun) == 34, "offset");
static_assert(offsetof(IdentifyNamespace, nawupf) == 36, "offset");
static_assert(offsetof(IdentifyNamespace, nacwu) == 38, "offset");
static_assert(offsetof(IdentifyNamespace, nabsn) == 40, "offset");
static_assert(offsetof(IdentifyNamespace, nabo) == 42, "offset");
static_assert(offsetof(IdentifyNamespace, nabspf) == 44, "offset");
static_assert(offsetof(IdentifyNamespace, noiob) == 46, "offset");
static_assert(offsetof(IdentifyNamespace, nvmcap) == 48, "offset");
static_assert(offsetof(IdentifyNamespace, npwg) == 64, "offset");
static_assert(offsetof(IdentifyNamespace, npwa) == 66, "offset");
static_assert(offsetof(IdentifyNamespace, npdg) == 68, "offset");
static_assert(offsetof(IdentifyNamespace, npda) == 70, "offset");
static_assert(offsetof(IdentifyNamespace, nows) == 72, "offset");
static_assert(offsetof(IdentifyNamespace, mssrl) == 74, "offset");
static_assert(offsetof(IdentifyNamespace, mcl) == 76, "offset");
static_assert(offsetof(IdentifyNamespace, msrc) == 80, "offset");
static_assert(offsetof(IdentifyNamespace, kpios) == 81, "offset");
static_assert(offsetof(IdentifyNamespace, nulbaf) == 82, "offset");
static_assert(offsetof(IdentifyNamespace, reserved0) == 83, "offset");
static_assert(offsetof(IdentifyNamespace, kpiodaag) == 84, "offset");
static_assert(offsetof(IdentifyNamespace, reserved1) == 88, "offset");
static_assert(offsetof(IdentifyNamespace, anagrpid) == 92, "offset");
static_assert(offsetof(IdentifyNamespace, reserved2) == 96, "offset");
static_assert(offsetof(IdentifyNamespace, nsattr) == 99, "offset");
static_assert(offsetof(IdentifyNamespace, nvmsetid) == 100, "offset");
static_assert(offsetof(IdentifyNamespace, endgid) == 102, "offset");
static_assert(offsetof(IdentifyNamespace, nguid) == 104, "offset");
static_assert(offsetof(IdentifyNamespace, eui64) == 120, "offset");
static_assert(offsetof(IdentifyNamespace, lbaf) == 128, "offset");
static_assert(offsetof(IdentifyNamespace, reserved3) == 384, "offset");

struct IndependentNamespace {
  std::uint8_t nsfeat;
  std::uint8_t nmic;
  std::uint8_t rescap;
  std::uint8_t fpi;
  std::uint32_t anagrpid;
  std::uint8_t nsattr;
  std::uint8_t reserved0;
  std::uint16_t nvmsetid;
  std::uint16_t endgid;
  std::uint8_t nstat;
  std::uint8_t kpios;
  std::uint16_t maxkt;
  std::uint16_t reserved1;
  std::uint32_t rgrpid;
  std::uint8_t reserved2[4072];
};
static_assert(sizeof(IndependentNamespace) == 4096, "size");
static_assert(offsetof(IndependentNamespace, nsfeat) == 0, "offset");
static_assert(offsetof(IndependentNamespace, nmic) == 1, "offset");
static_assert(offsetof(IndependentNamespace, rescap) == 2, "offset");
static_assert(offsetof(IndependentNamespace, fpi) == 3, "offset");
static_assert(offsetof(IndependentNamespace, anagrpid) == 4, "offset");
static_assert(offsetof(IndependentNamespace, nsattr) == 8, "offset");
static_assert(offsetof(IndependentNamespace, reserved0) == 9, "offset");
static_assert(offsetof(IndependentNamespace, nvmsetid) == 10, "offset");
static_assert(offsetof(IndependentNamespace, endgid) == 12, "offset");
static_assert(offsetof(IndependentNamespace, nstat) == 14, "offset");
static_assert(offsetof(IndependentNamespace, kpios) == 15, "offset");
static_assert(offsetof(IndependentNamespace, maxkt) == 16, "offset");
static_assert(offsetof(IndependentNamespace, reserved1) == 18, "offset");
static_assert(offsetof(IndependentNamespace, rgrpid) == 20, "offset");
static_assert(offsetof(IndependentNamespace, reserved2) == 24, "offset");

struct MemoryNamespace {
  std::uint64_t nsze;
  std::uint64_t ncap;
  std::uint32_t granularity;
  std::uint8_t reserved[4076];
};
static_assert(sizeof(MemoryNamespace) == 4096, "size");
static_assert(offsetof(MemoryNamespace, nsze) == 0, "offset");
static_assert(offsetof(MemoryNamespace, ncap) == 8, "offset");
static_assert(offsetof(MemoryNamespace, granularity) == 16, "offset");
static_assert(offsetof(MemoryNamespace, reserved) == 20, "offset");

struct ProgramsNamespace {
  std::uint16_t programs;
  std::uint16_t active_programs;
  std::uint16_t max_memory_range_sets;
  std::uint16_t max_memory_ranges;
  std::uint32_t max_program_bytes;
  std::uint8_t reserved[4084];
};
static_assert(sizeof(ProgramsNamespace) == 4096, "size");
static_assert(offsetof(ProgramsNamespace, programs) == 0, "offset");
static_assert(offsetof(ProgramsNamespace, active_programs) == 2, "offset");
static_assert(offsetof(ProgramsNamespace, max_memory_range_sets) == 4, "offset");
static_assert(offsetof(ProgramsNamespace, max_memory_ranges) == 6, "offset");
static_assert(offsetof(ProgramsNamespace, max_program_bytes) == 8, "offset");
static_assert(offsetof(ProgramsNamespace, reserved) == 12, "offset");

struct KeyValueFormat {
  std::uint16_t key_bytes;
  std::uint8_t reserved0;
  std::uint8_t performance;
  std::uint32_t value_bytes;
  std::uint32_t keys;
  std::uint32_t reserved1;
};
static_assert(sizeof(KeyValueFormat) == 16, "size");
static_assert(offsetof(KeyValueFormat, key_bytes) == 0, "offset");
static_assert(offsetof(KeyValueFormat, reserved0) == 2, "offset");
static_assert(offsetof(KeyValueFormat, performance) == 3, "offset");
static_assert(offsetof(KeyValueFormat, value_bytes) == 4, "offset");
static_assert(offsetof(KeyValueFormat, keys) == 8, "offset");
static_assert(offsetof(KeyValueFormat, reserved1) == 12, "offset");

struct KeyValueNamespace {
  std::uint64_t nsze;
  std::uint64_t reserved0;
  std::uint64_t nuse;
  std::uint8_t nsfeat;
  std::uint8_t nkvf;
  std::uint8_t nmic;
  std::uint8_t rescap;
  std::uint8_t fpi;
  std::uint8_t kvfc;
  std::uint8_t reserved1[2];
  std::uint32_t novg;
  std::uint32_t anagrpid;
  std::uint8_t reserved2[3];
  std::uint8_t nsattr;
  std::uint16_t nvmsetid;
  std::uint16_t endgid;
  std::uint8_t nguid[16];
  std::uint8_t eui64[8];
  std::uint32_t kvf[64];
  std::uint8_t reserved3[3768];
};
static_assert(sizeof(KeyValueNamespace) == 4096, "size");
static_assert(offsetof(KeyValueNamespace, nsze) == 0, "offset");
static_assert(offsetof(KeyValueNamespace, reserved0) == 8, "offset");
static_assert(offsetof(KeyValueNamespace, nuse) == 16, "offset");
static_assert(offsetof(KeyValueNamespace, nsfeat) == 24, "offset");
static_assert(offsetof(KeyValueNamespace, nkvf) == 25, "offset");
static_assert(offsetof(KeyValueNamespace, nmic) == 26, "offset");
static_assert(offsetof(KeyValueNamespace, rescap) == 27, "offset");
static_assert(offsetof(KeyValueNamespace, fpi) == 28, "offset");
static_assert(offsetof(KeyValueNamespace, kvfc) == 29, "offset");
static_assert(offsetof(KeyValueNamespace, reserved1) == 30, "offset");
static_assert(offsetof(KeyValueNamespace, novg) == 32, "offset");
static_assert(offsetof(KeyValueNamespace, anagrpid) == 36, "offset");
static_assert(offsetof(KeyValueNamespace, reserved2) == 40, "offset");
static_assert(offsetof(KeyValueNamespace, nsattr) == 43, "offset");
static_assert(offsetof(KeyValueNamespace, nvmsetid) == 44, "offset");
static_assert(offsetof(KeyValueNamespace, endgid) == 46, "offset");
static_assert(offsetof(KeyValueNamespace, nguid) == 48, "offset");
static_assert(offsetof(KeyValueNamespace, eui64) == 64, "offset");
static_assert(offsetof(KeyValueNamespace, kvf) == 72, "offset");
static_assert(offsetof(KeyValueNamespace, reserved3) == 328, "offset");

struct ProgramDescriptor {
  std::uint8_t occupied;
  std::uint8_t active;
  std::uint8_t kind;
  std::uint8_t reserved0;
  std::uint16_t index;
  std::uint16_t reserved1;
  std::uint64_t identifier;
  std::uint8_t name[16];
  std::uint8_t reserved2[32];
};
static_assert(sizeof(ProgramDescriptor) == 64, "size");
static_assert(offsetof(ProgramDescriptor, occupied) == 0, "offset");
static_assert(offsetof(ProgramDescriptor, active) == 1, "offset");
static_assert(offsetof(ProgramDescriptor, kind) == 2, "offset");
static_assert(offsetof(ProgramDescriptor, reserved0) == 3, "offset");
static_assert(offsetof(ProgramDescriptor, index) == 4, "offset");
static_assert(offsetof(ProgramDescriptor, reserved1) == 6, "offset");
static_assert(offsetof(ProgramDescriptor, identifier) == 8, "offset");
static_assert(offsetof(ProgramDescriptor, name) == 16, "offset");
static_assert(offsetof(ProgramDescriptor, reserved2) == 32, "offset");

struct ErrorEntry {
  std::uint64_t count;
  std::uint16_t sq_id;
  std::uint16_t cid;
  std::uint16_t status;
  std::uint16_t location;
  std::uint64_t lba;
  std::uint32_t nsid;
  std::uint8_t vendor;
  std::uint8_t trtype;
  std::uint8_t csi;
  std::uint8_t opcode;
  std::uint64_t specific;
  std::uint8_t reserved[24];
};
static_assert(sizeof(ErrorEntry) == 64, "size");
static_assert(offsetof(ErrorEntry, count) == 0, "offset");
static_assert(offsetof(ErrorEntry, sq_id) == 8, "offset");
static_assert(offsetof(ErrorEntry, cid) == 10, "offset");
static_assert(offsetof(ErrorEntry, status) == 12, "offset");
static_assert(offsetof(ErrorEntry, location) == 14, "offset");
static_assert(offsetof(ErrorEntry, lba) == 16, "offset");
static_assert(offsetof(ErrorEntry, nsid) == 24, "offset");
static_assert(offsetof(ErrorEntry, vendor) == 28, "offset");
static_assert(offsetof(ErrorEntry, trtype) == 29, "offset");
static_assert(offsetof(ErrorEntry, csi) == 30, "offset");
static_assert(offsetof(ErrorEntry, opcode) == 31, "offset");
static_assert(offsetof(ErrorEntry, specific) == 32, "offset");
static_assert(offsetof(ErrorEntry, reserved) == 40, "offset");

struct SmartLog {
  std::uint8_t critical_warning;
  std::uint8_t temperature[2];
  std::uint8_t spare_percent;
  std::uint8_t spare_threshold;
  std::uint8_t used_percent;
  std::uint8_t endurance_warning;
  std::uint8_t reserved0[25];
  std::uint64_t data_units_read[2];
  std::uint64_t data_units_written[2];
  std::uint64_t host_reads[2];
  std::uint64_t host_writes[2];
  std::uint64_t busy_minutes[2];
  std::uint64_t power_cycles[2];
  std::uint64_t power_on_hours[2];
  std::uint64_t unsafe_shutdowns[2];
  std::uint64_t media_errors[2];
  std::uint64_t error_entries[2];
  std::uint8_t reserved1[320];
};
static_assert(sizeof(SmartLog) == 512, "size");
static_assert(offsetof(SmartLog, critical_warning) == 0, "offset");
static_assert(offsetof(SmartLog, temperature) == 1, "offset");
static_assert(offsetof(SmartLog, spare_percent) == 3, "offset");
static_assert(offsetof(SmartLog, spare_threshold) == 4, "offset");
static_assert(offsetof(SmartLog, used_percent) == 5, "offset");
static_assert(offsetof(SmartLog, endurance_warning) == 6, "offset");
static_assert(offsetof(SmartLog, reserved0) == 7, "offset");
static_assert(offsetof(SmartLog, data_units_read) == 32, "offset");
static_assert(offsetof(SmartLog, data_units_written) == 48, "offset");
static_assert(offsetof(SmartLog, host_reads) == 64, "offset");
static_assert(offsetof(SmartLog, host_writes) == 80, "offset");
static_assert(offsetof(SmartLog, busy_minutes) == 96, "offset");
static_assert(offsetof(SmartLog, power_cycles) == 112, "offset");
static_assert(offsetof(SmartLog, power_on_hours) == 128, "offset");
static_assert(offsetof(SmartLog, unsafe_shutdowns) == 144, "offset");
static_assert(offsetof(SmartLog, media_errors) == 160, "offset");
static_assert(offsetof(SmartLog, error_entries) == 176, "offset");
static_assert(offsetof(SmartLog, reserved1) == 192, "offset");

struct AnaLog {
  std::uint64_t changes;
  std::uint16_t groups;
  std::uint16_t reserved0[3];
  std::uint32_t group;
  std::uint32_t namespaces;
  std::uint64_t group_changes;
  std::uint8_t state;
  std::uint8_t reserved1[15];
  std::uint32_t nsid[4];
};
static_assert(sizeof(AnaLog) == 64, "size");
static_assert(offsetof(AnaLog, changes) == 0, "offset");
static_assert(offsetof(AnaLog, groups) == 8, "offset");
static_assert(offsetof(AnaLog, reserved0) == 10, "offset");
static_assert(offsetof(AnaLog, group) == 16, "offset");
static_assert(offsetof(AnaLog, namespaces) == 20, "offset");
static_assert(offsetof(AnaLog, group_changes) == 24, "offset");
static_assert(offsetof(AnaLog, state) == 32, "offset");
static_assert(offsetof(AnaLog, reserved1) == 33, "offset");
static_assert(offsetof(AnaLog, nsid) == 48, "offset");

struct FirmwareLog {
  std::uint8_t active;
  std::uint8_t reserved0[7];
  std::uint64_t slots[7];
  std::uint8_t reserved1[448];
};
static_assert(sizeof(FirmwareLog) == 512, "size");
static_assert(offsetof(FirmwareLog, active) == 0, "offset");
static_assert(offsetof(FirmwareLog, reserved0) == 1, "offset");
static_assert(offsetof(FirmwareLog, slots) == 8, "offset");
static_assert(offsetof(FirmwareLog, reserved1) == 64, "offset");

struct SanitizeStatus {
  std::uint16_t sprog;
  std::uint16_t sstat;
  std::uint32_t scdw10;
  std::uint32_t eto;
  std::uint32_t etbe;
  std::uint32_t etce;
  std::uint32_t etond;
  std::uint32_t etbend;
  std::uint32_t etcend;
  std::uint32_t etpvds;
  std::uint8_t ssi;
  std::uint8_t reserved[475];
};
static_assert(sizeof(SanitizeStatus) == 512, "size");
static_assert(offsetof(SanitizeStatus, sprog) == 0, "offset");
static_assert(offsetof(SanitizeStatus, sstat) == 2, "offset");
static_assert(offsetof(SanitizeStatus, scdw10) == 4, "offset");
static_assert(offsetof(SanitizeStatus, eto) == 8, "offset");
static_assert(offsetof(SanitizeStatus, etbe) == 12, "offset");
static_assert(offsetof(SanitizeStatus, etce) == 16, "offset");
static_assert(offsetof(SanitizeStatus, etond) == 20, "offset");
static_assert(offsetof(SanitizeStatus, etbend) == 24, "offset");
static_assert(offsetof(SanitizeStatus, etcend) == 28, "offset");
static_assert(offsetof(SanitizeStatus, etpvds) == 32, "offset");
static_assert(offsetof(SanitizeStatus, ssi) == 36, "offset");
static_assert(offsetof(SanitizeStatus, reserved) == 37, "offset");

struct DriveStatistics {
  std::uint32_t version;
  std::uint32_t reserved0;
  std::uint64_t commands;
  std::uint64_t failed_commands;
  std::uint64_t host_bytes_in;
  std::uint64_t host_bytes_out;
  std::uint64_t pages_written;
  std::uint64_t pages_read;
  std::uint64_t staged_bytes_read;
  std::uint64_t attention_jobs;
  std::uint64_t device_ns;
  std::uint64_t engine_cycles;
  std::uint64_t memory_bytes;
  std::uint64_t journal_bytes;
  std::uint64_t file_writes;
  std::uint64_t groups_live;
  std::uint64_t groups_available;
  std::uint64_t groups_queued;
  std::uint64_t groups_moved;
  std::uint64_t units_programmed;
  std::uint64_t pages_sensed;
  std::uint64_t lost_groups;
  std::uint64_t filter_pages;
  std::uint64_t filter_rows_kept;
  std::uint64_t filter_rows_dropped;
  std::uint64_t filter_bytes;
  std::uint64_t staged_bytes;
  std::uint64_t metadata_bytes;
  std::uint64_t erases;
  std::uint64_t least_erases;
  std::uint64_t most_erases;
  std::uint64_t bad_blocks;
  std::uint64_t program_failures;
  std::uint64_t erase_failures;
  std::uint64_t channels;
  std::uint64_t channel_bytes;
  std::uint64_t channel_busy_ns;
  std::uint64_t block_reads;
  std::uint64_t block_writes;
  std::uint64_t staged_budget;
  std::uint64_t metadata_budget;
  std::uint64_t session_groups;
  std::uint64_t run_groups;
  std::uint64_t groups_levelled;
  std::uint64_t reads_retried;
  std::uint64_t sensings_repeated;
  std::uint64_t values;
  std::uint64_t value_bytes;
  std::uint64_t value_stores;
  std::uint64_t value_retrieves;
  std::uint64_t reserved1[15];
};
static_assert(sizeof(DriveStatistics) == 512, "size");
static_assert(offsetof(DriveStatistics, version) == 0, "offset");
static_assert(offsetof(DriveStatistics, reserved0) == 4, "offset");
static_assert(offsetof(DriveStatistics, commands) == 8, "offset");
static_assert(offsetof(DriveStatistics, failed_commands) == 16, "offset");
static_assert(offsetof(DriveStatistics, host_bytes_in) == 24, "offset");
static_assert(offsetof(DriveStatistics, host_bytes_out) == 32, "offset");
static_assert(offsetof(DriveStatistics, pages_written) == 40, "offset");
static_assert(offsetof(DriveStatistics, pages_read) == 48, "offset");
static_assert(offsetof(DriveStatistics, staged_bytes_read) == 56, "offset");
static_assert(offsetof(DriveStatistics, attention_jobs) == 64, "offset");
static_assert(offsetof(DriveStatistics, device_ns) == 72, "offset");
static_assert(offsetof(DriveStatistics, engine_cycles) == 80, "offset");
static_assert(offsetof(DriveStatistics, memory_bytes) == 88, "offset");
static_assert(offsetof(DriveStatistics, journal_bytes) == 96, "offset");
static_assert(offsetof(DriveStatistics, file_writes) == 104, "offset");
static_assert(offsetof(DriveStatistics, groups_live) == 112, "offset");
static_assert(offsetof(DriveStatistics, groups_available) == 120, "offset");
static_assert(offsetof(DriveStatistics, groups_queued) == 128, "offset");
static_assert(offsetof(DriveStatistics, groups_moved) == 136, "offset");
static_assert(offsetof(DriveStatistics, units_programmed) == 144, "offset");
static_assert(offsetof(DriveStatistics, pages_sensed) == 152, "offset");
static_assert(offsetof(DriveStatistics, lost_groups) == 160, "offset");
static_assert(offsetof(DriveStatistics, filter_pages) == 168, "offset");
static_assert(offsetof(DriveStatistics, filter_rows_kept) == 176, "offset");
static_assert(offsetof(DriveStatistics, filter_rows_dropped) == 184, "offset");
static_assert(offsetof(DriveStatistics, filter_bytes) == 192, "offset");
static_assert(offsetof(DriveStatistics, staged_bytes) == 200, "offset");
static_assert(offsetof(DriveStatistics, metadata_bytes) == 208, "offset");
static_assert(offsetof(DriveStatistics, erases) == 216, "offset");
static_assert(offsetof(DriveStatistics, least_erases) == 224, "offset");
static_assert(offsetof(DriveStatistics, most_erases) == 232, "offset");
static_assert(offsetof(DriveStatistics, bad_blocks) == 240, "offset");
static_assert(offsetof(DriveStatistics, program_failures) == 248, "offset");
static_assert(offsetof(DriveStatistics, erase_failures) == 256, "offset");
static_assert(offsetof(DriveStatistics, channels) == 264, "offset");
static_assert(offsetof(DriveStatistics, channel_bytes) == 272, "offset");
static_assert(offsetof(DriveStatistics, channel_busy_ns) == 280, "offset");
static_assert(offsetof(DriveStatistics, block_reads) == 288, "offset");
static_assert(offsetof(DriveStatistics, block_writes) == 296, "offset");
static_assert(offsetof(DriveStatistics, staged_budget) == 304, "offset");
static_assert(offsetof(DriveStatistics, metadata_budget) == 312, "offset");
static_assert(offsetof(DriveStatistics, session_groups) == 320, "offset");
static_assert(offsetof(DriveStatistics, run_groups) == 328, "offset");
static_assert(offsetof(DriveStatistics, groups_levelled) == 336, "offset");
static_assert(offsetof(DriveStatistics, reads_retried) == 344, "offset");
static_assert(offsetof(DriveStatistics, sensings_repeated) == 352, "offset");
static_assert(offsetof(DriveStatistics, values) == 360, "offset");
static_assert(offsetof(DriveStatistics, value_bytes) == 368, "offset");
static_assert(offsetof(DriveStatistics, value_stores) == 376, "offset");
static_assert(offsetof(DriveStatistics, value_retrieves) == 384, "offset");
static_assert(offsetof(DriveStatistics, reserved1) == 392, "offset");

}  // namespace nvme
}  // namespace kvdrive
