// SPDX-License-Identifier: Apache-2.0
// Cuts the bytes of a connection into PDUs and checks everything that a PDU says about itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tcp/pdu.hpp"

namespace kvdrive::tcp {

// What ends a connection; `offset` is the field's place in the PDU.
struct Fault {
  FatalError error;
  std::uint32_t information = 0;
};

// One PDU; the views are valid until the reader gets or keeps bytes.
struct Pdu {
  CommonHeader common{};
  ByteView header{};  // all of it, without digest
  ByteView data{};
  bool data_damaged = false;  // the data digest does not match
};

class PduReader {
 public:
  // A capsule carries at most `in_capsule_bytes` of data.
  explicit PduReader(std::uint32_t in_capsule_bytes) : in_capsule_bytes_(in_capsule_bytes) {}

  // From the exchange of ICReq and ICResp on.
  void start(Digests digests);

  // Takes bytes that arrived; they stay where they are until `keep`.
  void feed(ByteView bytes);
  // Copies what is left of them, and frees what is not needed any more.
  void keep();
  // The next whole PDU; nothing while it is not there or after a fault.
  std::optional<Pdu> next();
  const std::optional<Fault>& fault() const { return fault_; }
  // Bytes of the PDU at fault, or of one that is not complete.
  ByteView pending() const { return bytes_.subspan(begin_); }

 private:
  std::optional<Fault> check(const CommonHeader& common) const;
  std::uint32_t expected_header(std::uint8_t type) const;

  std::uint32_t in_capsule_bytes_;
  bool started_ = false;
  Digests digests_{};
  Bytes buffer_{};         // bytes that were kept
  ByteView bytes_{};       // of `buffer_`, or those that arrived just now
  std::size_t begin_ = 0;  // of the PDU that comes next
  std::optional<Fault> fault_{};
};

}  // namespace kvdrive::tcp
