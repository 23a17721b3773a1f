// SPDX-License-Identifier: Apache-2.0
// DH-HMAC-CHAP (NVM Express Base Specification 2.1, 8.3.4.5), the controller's side. A host proves that it knows its
// secret; the controller proves the same if the host asks for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tcp/crypto.hpp"

namespace kvdrive::tcp {

// A secret as "DHHC-1:<hash>:<base64 of key and its CRC-32>:".
struct DhchapSecret {
  std::optional<Hash> transform;  // if set, the key is HMAC(key, NQN | "NVMe-over-Fabrics")
  Bytes key;

  // Throws std::invalid_argument; the message never contains the secret.
  static DhchapSecret parse(std::string_view text);
  Bytes key_for(std::string_view nqn) const;
};

// One authentication on one queue.
class Authentication {
 public:
  struct Parties {
    std::string host_nqn, subsystem_nqn;
    DhchapSecret host;
    std::optional<DhchapSecret> controller;
  };

  explicit Authentication(Parties parties);

  // Takes the message of an Authentication Send. Returns false for a message that cannot be answered: the command is
  // refused.
  bool receive(ByteView message);
  // Returns the message for an Authentication Receive; empty if it is the host's turn.
  Bytes next_message();

  bool authenticated() const { return state_ == State::kDone; }
  // True after the failure message was sent.
  bool failed() const { return state_ == State::kFailed; }

 private:
  enum class State { kNegotiate, kChallenge, kReply, kSuccess, kConfirm, kFailure, kFailed, kDone };

  bool negotiate(ByteView message);
  bool reply(ByteView message);
  Bytes challenge();
  Bytes success();
  bool fail(std::uint8_t reason);
  Bytes response(const DhchapSecret& secret, std::string_view own, std::string_view other, std::string_view role,
                 ByteView challenge, std::uint32_t sequence) const;

  Parties parties_;
  State state_ = State::kNegotiate;
  std::uint16_t transaction_ = 0;
  std::uint8_t concatenation_ = 0;
  Hash hash_ = Hash::kSha256;
  DhGroup group_ = DhGroup::kNull;
  std::uint32_t sequence_ = 0;
  Bytes challenge_{};
  std::optional<DhKey> dh_{};
  Bytes session_{};  // hash of the shared secret; empty without DH
  Bytes controller_response_{};
  std::uint8_t reason_ = 0;
};

}  // namespace kvdrive::tcp
