// SPDX-License-Identifier: Apache-2.0
#include "tcp/pdu.hpp"

#include <algorithm>
#include <bit>

#include "commands/reply.hpp"
#include "crc32c.hpp"

namespace kvdrive::tcp {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename T>
ByteView bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

void put(Bytes& to, std::size_t offset, ByteView from) {
  if (!from.empty()) std::memcpy(to.data() + offset, from.data(), from.size());
}

template <typename T>
CommonHeader header(PduType type, std::uint8_t flags = 0) {
  return {type, flags, sizeof(T), 0, sizeof(T)};
}

}  // namespace

Bytes PduWriter::initialize_response(Digests digests) {
  InitializeConnection response{};
  response.common = header<InitializeConnection>(kIcResp);
  response.digests = static_cast<std::uint8_t>((digests.header ? 1 : 0) | (digests.data ? 2 : 0));
  response.limit = kMaxH2CDataBytes;
  return nvme::bytes_of(response);
}

Bytes PduWriter::termination(FatalError error, std::uint32_t information, ByteView header_at_fault) {
  const ByteView copy = header_at_fault.first(std::min<std::size_t>(header_at_fault.size(), 128));
  TerminationRequest request{};
  request.common = header<TerminationRequest>(kC2HTermReq);
  request.common.bytes += static_cast<std::uint32_t>(copy.size());
  request.status = static_cast<std::uint16_t>(error);
  std::memcpy(request.information, &information, sizeof information);
  Bytes pdu(request.common.bytes);
  put(pdu, 0, bytes_of(request));
  put(pdu, sizeof request, copy);
  return pdu;
}

Bytes PduWriter::response(const abi::Cqe& completion) const {
  const CapsuleResp pdu{header<CapsuleResp>(kCapsuleResp), completion};
  return finish(bytes_of(pdu), {}, false);
}

Bytes PduWriter::ready_to_transfer(std::uint16_t cid, std::uint16_t tag, std::uint32_t length) const {
  const DataHeader pdu{header<DataHeader>(kR2T), cid, tag, 0, length, 0};
  return finish(bytes_of(pdu), {}, false);
}

Bytes PduWriter::data(std::uint16_t cid, ByteView data, std::uint32_t offset, std::uint32_t length,
                      bool corrupt) const {
  const bool last = std::size_t{offset} + length == data.size();
  const DataHeader pdu{header<DataHeader>(kC2HData, last ? kLastPdu : 0), cid, 0, offset, length, 0};
  return finish(bytes_of(pdu), data.subspan(offset, length), corrupt);
}

// Adds padding and digests, and fills in the digest flags, the data offset and the length.
Bytes PduWriter::finish(ByteView header, ByteView data, bool corrupt) const {
  CommonHeader common = read_as<CommonHeader>(header);
  std::size_t front = header.size() + (digests_.header ? kDigestBytes : 0);
  const bool data_digest = digests_.data && !data.empty();
  if (!data.empty()) {
    front = (front + alignment_ - 1) / alignment_ * alignment_;
    common.data_offset = static_cast<std::uint8_t>(front);
  }
  if (digests_.header) common.flags |= kHeaderDigest;
  if (data_digest) common.flags |= kDataDigest;
  common.bytes = static_cast<std::uint32_t>(front + data.size() + (data_digest ? kDigestBytes : 0));

  Bytes pdu(common.bytes);
  put(pdu, 0, header);
  put(pdu, 0, bytes_of(common));
  if (digests_.header) put(pdu, header.size(), bytes_of(crc32c(ByteView(pdu).first(header.size()))));
  put(pdu, front, data);
  if (data_digest) put(pdu, front + data.size(), bytes_of(crc32c(data) ^ (corrupt ? 1u : 0u)));
  return pdu;
}

}  // namespace kvdrive::tcp
