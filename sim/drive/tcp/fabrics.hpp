// SPDX-License-Identifier: Apache-2.0
// Numbers and layouts of NVMe over Fabrics.
#pragma once

#include <cstdint>

namespace kvdrive::tcp {

enum FabricsType : std::uint8_t {
  kPropertySet = 0x00,
  kConnect = 0x01,
  kPropertyGet = 0x04,
  kAuthenticationSend = 0x05,
  kAuthenticationReceive = 0x06,
  kDisconnect = 0x08,
};

// Status code type << 8 | status code.
enum FabricsStatus : std::uint32_t {
  kBadSglOffset = 0x016,
  kTransientTransportError = 0x022,
  kNamespaceNotReady = 0x082,
  kIncompatibleFormat = 0x180,
  kConnectInvalidParameters = 0x182,
  kConnectInvalidHost = 0x184,
  kAuthenticationRequired = 0x191,
};

// SGL descriptors (type << 4 | subtype).
inline constexpr std::uint8_t kSglInCapsule = 0x01, kSglTransport = 0x5a;

inline constexpr std::uint32_t kAuthenticationRequest = 1u << 17;  // in the result of Connect
inline constexpr std::uint8_t kNoFlowControl = 1u << 2;            // in the attributes of Connect
inline constexpr std::uint16_t kAnyController = 0xffff;            // CNTLID of Connect: create a controller
inline constexpr std::uint8_t kDhchapProtocol = 0xe9;              // SECP

// The data of Connect.
struct ConnectData {
  std::uint8_t host_id[16];
  std::uint16_t controller_id;
  std::uint8_t reserved0[238];
  char subsystem_nqn[256], host_nqn[256];
  std::uint8_t reserved1[256];
};
static_assert(sizeof(ConnectData) == 1024);

}  // namespace kvdrive::tcp
