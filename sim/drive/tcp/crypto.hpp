// SPDX-License-Identifier: Apache-2.0
// The primitives of DH-HMAC-CHAP, from OpenSSL's libcrypto and, for CRC-32, from zlib.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>

#include "tcp/pdu.hpp"

struct evp_pkey_st;

namespace kvdrive::tcp {

// The values are those of the wire format.
enum class Hash : std::uint8_t { kSha256 = 1, kSha384 = 2, kSha512 = 3 };
enum class DhGroup : std::uint8_t { kNull = 0, k2048 = 1, k3072 = 2, k4096 = 3, k6144 = 4, k8192 = 5 };

std::size_t hash_bytes(Hash hash);
ByteView view_of(std::string_view text);

// The functions below throw std::runtime_error when libcrypto fails.
Bytes digest(Hash hash, ByteView data);
Bytes hmac(Hash hash, ByteView key, std::initializer_list<ByteView> pieces);
Bytes random_bytes(std::size_t count);

// Decodes base64, with or without padding. Returns nothing for a text that is not base64.
std::optional<Bytes> base64_decoded(std::string_view text);
// CRC-32 as in IEEE 802.3.
std::uint32_t crc32(ByteView data);

// Compares in a time that does not depend on the contents, so that timing reveals nothing.
bool equal(ByteView a, ByteView b);

// An ephemeral key in one of the groups of RFC 7919.
class DhKey {
 public:
  explicit DhKey(DhGroup group);
  ByteView public_value() const { return public_; }
  // Returns an empty result when the peer's value does not belong to the group.
  Bytes shared_secret(ByteView peer) const;

 private:
  DhGroup group_;
  std::shared_ptr<evp_pkey_st> key_;
  Bytes public_{};
};

}  // namespace kvdrive::tcp
