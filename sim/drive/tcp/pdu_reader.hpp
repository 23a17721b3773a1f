// SPDX-License-Identifier: Apache-2.0
// Splits the bytes of a connection into PDUs and checks every field that describes the PDU itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tcp/pdu.hpp"

namespace kvdrive::tcp {

// An error that ends the connection; `offset` is the position of the field in the PDU.
struct Fault {
  FatalError error;
  std::uint32_t information = 0;
};

// One PDU. The views are valid until the next `feed` or `keep`.
struct Pdu {
  CommonHeader common{};
  ByteView header{};  // the whole header without its digest
  ByteView data{};
  bool data_damaged = false;  // the data digest does not match
};

class PduReader {
 public:
  // A capsule carries at most `in_capsule_bytes` of data.
  explicit PduReader(std::uint32_t in_capsule_bytes) : in_capsule_bytes_(in_capsule_bytes) {}

  // Called after ICReq and ICResp were exchanged: digests apply from now on.
  void start(Digests digests);

  // Takes bytes that arrived. They must stay in place until `keep`.
  void feed(ByteView bytes);
  // Copies the bytes that are left, and frees memory that is not needed any more.
  void keep();
  // Returns the next whole PDU; nothing if it is incomplete, or after a fault.
  std::optional<Pdu> next();
  const std::optional<Fault>& fault() const { return fault_; }
  // The bytes of the PDU at fault, or of one that is incomplete.
  ByteView pending() const { return bytes_.subspan(begin_); }

 private:
  std::optional<Fault> check(const CommonHeader& common) const;
  std::uint32_t expected_header(std::uint8_t type) const;

  std::uint32_t in_capsule_bytes_;
  bool started_ = false;
  Digests digests_{};
  Bytes buffer_{};         // bytes that were kept
  ByteView bytes_{};       // a view of `buffer_` or of the bytes just fed
  std::size_t begin_ = 0;  // start of the next PDU
  std::optional<Fault> fault_{};
};

}  // namespace kvdrive::tcp
