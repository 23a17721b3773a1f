// SPDX-License-Identifier: Apache-2.0
// Protocol data units of NVMe/TCP (NVM Express TCP Transport Specification 1.1): layouts, codes, and the writer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "common/abi.hpp"

namespace kvdrive::tcp {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

enum PduType : std::uint8_t {
  kIcReq = 0x00,
  kIcResp = 0x01,
  kH2CTermReq = 0x02,
  kC2HTermReq = 0x03,
  kCapsuleCmd = 0x04,
  kCapsuleResp = 0x05,
  kH2CData = 0x06,
  kC2HData = 0x07,
  kR2T = 0x09,
};

enum PduFlag : std::uint8_t { kHeaderDigest = 0x01, kDataDigest = 0x02, kLastPdu = 0x04 };

// The reason why a connection is terminated (FES of C2HTermReq).
enum class FatalError : std::uint16_t {
  kInvalidHeaderField = 1,
  kSequence = 2,
  kHeaderDigestMismatch = 3,
  kOutOfRange = 4,
  kLimitExceeded = 5,
  kUnsupportedParameter = 6,
};

inline constexpr std::size_t kDigestBytes = 4;
inline constexpr std::uint32_t kDefaultPort = 4420;
inline constexpr std::uint32_t kMaxPadding = 124;             // padding between header and data
inline constexpr std::uint32_t kMaxH2CDataBytes = 128 << 10;  // data of one H2CData PDU
inline constexpr std::uint32_t kMaxC2HDataBytes = 128 << 10;  // data of one C2HData PDU
inline constexpr std::uint32_t kInCapsuleBytes = 8192;        // the admin queue allows no other value
inline constexpr std::uint32_t kMaxTermReqBytes = 24 + 128;   // includes the header that was at fault
inline constexpr std::uint8_t kMaxDataAlignment = 31;         // HPDA, in units of 4 bytes, 0-based

struct CommonHeader {
  std::uint8_t type, flags, header_bytes, data_offset;
  std::uint32_t bytes;  // size of the whole PDU with its digests
};

// The layout of ICReq and ICResp.
struct InitializeConnection {
  CommonHeader common;
  std::uint16_t format;
  std::uint8_t alignment;  // HPDA or CPDA
  std::uint8_t digests;    // bit 0: header digest, bit 1: data digest
  std::uint32_t limit;     // ICReq: R2Ts of one command, 0-based; ICResp: bytes of one H2CData PDU
  std::uint8_t reserved[112];
};

struct CapsuleCmd {
  CommonHeader common;
  abi::Sqe command;
};

struct CapsuleResp {
  CommonHeader common;
  abi::Cqe completion;
};

// The layout of H2CData, C2HData and R2T.
struct DataHeader {
  CommonHeader common;
  std::uint16_t cid;
  std::uint16_t tag;  // TTAG; reserved in C2HData
  std::uint32_t offset;
  std::uint32_t length;
  std::uint32_t reserved;
};

// The layout of H2CTermReq and C2HTermReq.
struct TerminationRequest {
  CommonHeader common;
  std::uint16_t status;
  std::uint8_t information[4];
  std::uint8_t reserved[10];
};

static_assert(sizeof(CommonHeader) == 8 && sizeof(InitializeConnection) == 128 && sizeof(CapsuleCmd) == 72);
static_assert(sizeof(CapsuleResp) == 24 && sizeof(DataHeader) == 24 && sizeof(TerminationRequest) == 24);

struct Digests {
  bool header = false;
  bool data = false;
};

// Reads a `T` from the start of `bytes`. Precondition: `bytes` is long enough.
template <typename T>
T read_as(ByteView bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// Builds the PDUs that a controller sends.
class PduWriter {
 public:
  PduWriter() = default;
  // `alignment` is HPDA: data begin at a multiple of 4 * (alignment + 1) bytes.
  PduWriter(Digests digests, std::uint8_t alignment) : digests_(digests), alignment_(4u * (alignment + 1u)) {}

  static Bytes initialize_response(Digests digests);
  static Bytes termination(FatalError error, std::uint32_t information, ByteView header_at_fault);
  Bytes response(const abi::Cqe& completion) const;
  Bytes ready_to_transfer(std::uint16_t cid, std::uint16_t tag, std::uint32_t length) const;
  // Builds the PDU with data[offset, offset + length) of a command's data. `corrupt` damages the data digest (fault
  // injection).
  Bytes data(std::uint16_t cid, ByteView data, std::uint32_t offset, std::uint32_t length, bool corrupt) const;

 private:
  Bytes finish(ByteView header, ByteView data, bool corrupt) const;

  Digests digests_{};
  std::uint32_t alignment_ = 4;
};

}  // namespace kvdrive::tcp
