// SPDX-License-Identifier: Apache-2.0
#include "tcp/pdu_reader.hpp"

#include <cstddef>

#include "crc32c.hpp"

namespace kvdrive::tcp {
namespace {

// Offsets of header fields, for the report of a fault.
constexpr std::uint32_t kTypeField = offsetof(CommonHeader, type);
constexpr std::uint32_t kFlagsField = offsetof(CommonHeader, flags);
constexpr std::uint32_t kHeaderField = offsetof(CommonHeader, header_bytes);
constexpr std::uint32_t kOffsetField = offsetof(CommonHeader, data_offset);
constexpr std::uint32_t kLengthField = offsetof(CommonHeader, bytes);

bool is_known(std::uint8_t type) { return type <= kC2HData || type == kR2T; }

}  // namespace

void PduReader::start(Digests digests) {
  started_ = true;
  digests_ = digests;
}

void PduReader::feed(ByteView bytes) {
  if (fault_) return;
  if (!pending().empty()) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    bytes = ByteView(buffer_).subspan(begin_);
  }
  bytes_ = bytes;
  begin_ = 0;
}

void PduReader::keep() {
  if (begin_ == 0 && bytes_.data() == buffer_.data()) return;
  buffer_ = Bytes(pending().begin(), pending().end());
  bytes_ = buffer_;
  begin_ = 0;
}

std::uint32_t PduReader::expected_header(std::uint8_t type) const {
  switch (type) {
    case kIcReq:
      return sizeof(InitializeConnection);
    case kCapsuleCmd:
      return sizeof(CapsuleCmd);
    case kH2CData:
      return sizeof(DataHeader);
    default:
      return sizeof(TerminationRequest);
  }
}

std::optional<Fault> PduReader::check(const CommonHeader& common) const {
  const auto invalid = [](std::uint32_t field) { return Fault{FatalError::kInvalidHeaderField, field}; };
  const bool for_controller =
      common.type == kIcReq || common.type == kH2CTermReq || common.type == kCapsuleCmd || common.type == kH2CData;
  if (!is_known(common.type)) return invalid(kTypeField);
  if (!for_controller || (started_ ? common.type == kIcReq : common.type != kIcReq))
    return Fault{FatalError::kSequence};
  const std::uint32_t header = expected_header(common.type);
  if (common.header_bytes != header) return invalid(kHeaderField);

  if (common.type == kIcReq || common.type == kH2CTermReq) {
    if (common.flags != 0) return invalid(kFlagsField);
    const bool fits =
        common.type == kIcReq ? common.bytes == header : common.bytes >= header && common.bytes <= kMaxTermReqBytes;
    return fits ? std::nullopt : std::optional(invalid(kLengthField));
  }

  const std::uint32_t front = header + (digests_.header ? kDigestBytes : 0);
  const bool has_data = common.type == kH2CData || common.bytes > front;
  const std::uint8_t flags =
      static_cast<std::uint8_t>((digests_.header ? kHeaderDigest : 0) | (digests_.data && has_data ? kDataDigest : 0));
  const std::uint8_t optional_flags = common.type == kH2CData ? kLastPdu : 0;
  if ((common.flags & ~optional_flags) != flags) return invalid(kFlagsField);
  if (!has_data) return common.bytes == front ? std::nullopt : std::optional(invalid(kLengthField));
  if (common.data_offset < front || common.data_offset > front + kMaxPadding || common.data_offset % 4 != 0) {
    return invalid(kOffsetField);
  }
  const std::uint32_t around = common.data_offset + (digests_.data ? kDigestBytes : 0);
  const std::uint32_t limit = common.type == kH2CData ? kMaxH2CDataBytes : in_capsule_bytes_;
  if (common.bytes <= around) return invalid(kLengthField);
  if (common.bytes - around > limit) return Fault{FatalError::kLimitExceeded};
  return std::nullopt;
}

std::optional<Pdu> PduReader::next() {
  const ByteView bytes = pending();
  if (fault_ || bytes.size() < sizeof(CommonHeader)) return std::nullopt;
  Pdu pdu;
  pdu.common = read_as<CommonHeader>(bytes);
  fault_ = check(pdu.common);
  if (fault_ || bytes.size() < pdu.common.bytes) return std::nullopt;

  pdu.header = bytes.first(pdu.common.header_bytes);
  if (pdu.common.flags & kHeaderDigest) {
    const auto digest = read_as<std::uint32_t>(bytes.subspan(pdu.header.size()));
    if (digest != crc32c(pdu.header)) {
      fault_ = Fault{FatalError::kHeaderDigestMismatch, digest};
      return std::nullopt;
    }
  }
  if (pdu.common.type == kCapsuleCmd || pdu.common.type == kH2CData) {
    const std::size_t front = pdu.header.size() + (digests_.header ? kDigestBytes : 0);
    if (pdu.common.bytes > front) {
      const std::size_t digest_bytes = digests_.data ? kDigestBytes : 0;
      pdu.data = bytes.subspan(pdu.common.data_offset, pdu.common.bytes - pdu.common.data_offset - digest_bytes);
      pdu.data_damaged =
          digests_.data && read_as<std::uint32_t>(bytes.subspan(pdu.common.bytes - kDigestBytes)) != crc32c(pdu.data);
    }
  }
  begin_ += pdu.common.bytes;
  return pdu;
}

}  // namespace kvdrive::tcp
