// SPDX-License-Identifier: Apache-2.0
#include "tcp/dhchap.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace kvdrive::tcp {
namespace {

constexpr std::uint8_t kCommonType = 0, kDhchapType = 1, kProtocol = 1;
constexpr std::uint8_t kNegotiateId = 0x00, kChallengeId = 0x01, kReplyId = 0x02, kSuccess1Id = 0x03;
constexpr std::uint8_t kSuccess2Id = 0x04, kFailure2Id = 0xf0, kFailure1Id = 0xf1;

// Explanations of a failure; the reason code is always 1, "authentication failure".
constexpr std::uint8_t kAuthenticationFailed = 1, kProtocolNotUsable = 2, kConcatenationNotUsable = 3;
constexpr std::uint8_t kHashNotUsable = 4, kGroupNotUsable = 5, kPayloadIncorrect = 6, kMessageIncorrect = 7;

// The order is strongest first, except that larger groups cost the host more time than they are worth.
constexpr std::array kHashes{Hash::kSha512, Hash::kSha384, Hash::kSha256};
constexpr std::array kGroups{DhGroup::k2048, DhGroup::k3072, DhGroup::k4096,
                             DhGroup::k6144, DhGroup::k8192, DhGroup::kNull};

struct Negotiate {
  std::uint8_t type, id;
  std::uint16_t reserved, transaction;
  std::uint8_t concatenation, protocols;
};

struct ProtocolDescriptor {
  std::uint8_t protocol, reserved, hashes, groups;
  std::uint8_t hash_list[30], group_list[30];
};

struct Challenge {
  std::uint8_t type, id;
  std::uint16_t reserved0, transaction;
  std::uint8_t hash_length, reserved1, hash, group;
  std::uint16_t dh_length;
  std::uint32_t sequence;
};

struct Reply {
  std::uint8_t type, id;
  std::uint16_t reserved0, transaction;
  std::uint8_t hash_length, reserved1, challenge_valid, reserved2;
  std::uint16_t dh_length;
  std::uint32_t sequence;
};

struct Success {
  std::uint8_t type, id;
  std::uint16_t reserved0, transaction;
  std::uint8_t hash_length, reserved1, response_valid, reserved2[7];
};

struct Failure {
  std::uint8_t type, id;
  std::uint16_t reserved, transaction;
  std::uint8_t reason, explanation;
};

static_assert(sizeof(Negotiate) == 8 && sizeof(ProtocolDescriptor) == 64 && sizeof(Challenge) == 16);
static_assert(sizeof(Reply) == 16 && sizeof(Success) == 16 && sizeof(Failure) == 8);

template <typename T>
Bytes message(const T& head, std::initializer_list<ByteView> tail = {}) {
  const ByteView bytes = std::as_bytes(std::span(&head, 1));
  Bytes result(bytes.begin(), bytes.end());
  for (const ByteView piece : tail) result.insert(result.end(), piece.begin(), piece.end());
  return result;
}

template <typename T>
ByteView little_endian(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

DhchapSecret DhchapSecret::parse(std::string_view text) {
  constexpr std::string_view kPrefix = "DHHC-1:";
  const bool framed = text.size() > kPrefix.size() + 4 && text.starts_with(kPrefix) && text.ends_with(':') &&
                      text[kPrefix.size()] == '0' && text[kPrefix.size() + 2] == ':';
  const int transform = framed ? text[kPrefix.size() + 1] - '0' : -1;
  if (transform < 0 || transform > 3) {
    throw std::invalid_argument(
        "a DH-HMAC-CHAP secret has the form DHHC-1:00:...: (make one with nvme gen-dhchap-key)");
  }
  const auto decoded = base64_decoded(text.substr(kPrefix.size() + 3, text.size() - kPrefix.size() - 4));
  if (!decoded) throw std::invalid_argument("a DH-HMAC-CHAP secret is base64");
  const Bytes& content = *decoded;
  if (content.size() != 36 && content.size() != 52 && content.size() != 68) {
    throw std::invalid_argument("the key of a DH-HMAC-CHAP secret has 32, 48 or 64 bytes and a CRC-32");
  }
  const auto crc = read_as<std::uint32_t>(ByteView(content).last(4));
  Bytes key(content.begin(), content.end() - 4);
  if (crc != crc32(key)) throw std::invalid_argument("the CRC-32 of a DH-HMAC-CHAP secret does not match");
  return {transform == 0 ? std::nullopt : std::optional(static_cast<Hash>(transform)), std::move(key)};
}

Bytes DhchapSecret::key_for(std::string_view nqn) const {
  return transform ? hmac(*transform, key, {view_of(nqn), view_of("NVMe-over-Fabrics")}) : key;
}

Authentication::Authentication(Parties parties) : parties_(std::move(parties)) {}

bool Authentication::fail(std::uint8_t reason) {
  state_ = State::kFailure;
  reason_ = reason;
  return true;
}

bool Authentication::receive(ByteView bytes) {
  if (bytes.size() < sizeof(Failure)) return false;
  const auto head = read_as<Failure>(bytes);  // type, id and transaction have the same place in every message
  const bool dhchap = head.type == kDhchapType && head.transaction == transaction_;
  // A host may begin again at any time.
  if (head.type == kCommonType && head.id == kNegotiateId) return negotiate(bytes);
  if (dhchap && head.id == kReplyId && state_ == State::kReply) return reply(bytes);
  if (dhchap && head.id == kSuccess2Id && state_ == State::kConfirm) {
    state_ = State::kDone;
    return true;
  }
  if (head.id == kFailure2Id && head.type <= kDhchapType) {
    state_ = State::kFailed;
    return true;
  }
  transaction_ = head.transaction;
  return fail(kMessageIncorrect);
}

bool Authentication::negotiate(ByteView bytes) {
  const auto head = read_as<Negotiate>(bytes);
  transaction_ = head.transaction;
  concatenation_ = head.concatenation;
  if (concatenation_ != 0) return fail(kConcatenationNotUsable);  // requests TLS
  if (bytes.size() < sizeof(Negotiate) + std::size_t{head.protocols} * sizeof(ProtocolDescriptor)) {
    return fail(kPayloadIncorrect);
  }
  for (std::size_t i = 0; i < head.protocols; ++i) {
    const auto offer = read_as<ProtocolDescriptor>(bytes.subspan(sizeof(Negotiate) + i * sizeof(ProtocolDescriptor)));
    if (offer.protocol != kProtocol) continue;
    if (offer.hashes > 30 || offer.groups > 30) return fail(kPayloadIncorrect);
    const auto offered = [](const std::uint8_t* list, std::uint8_t count, auto wanted) {
      return std::find(list, list + count, static_cast<std::uint8_t>(wanted)) != list + count;
    };
    const auto hash = std::ranges::find_if(kHashes, [&](Hash h) { return offered(offer.hash_list, offer.hashes, h); });
    const auto group =
        std::ranges::find_if(kGroups, [&](DhGroup g) { return offered(offer.group_list, offer.groups, g); });
    if (hash == kHashes.end()) return fail(kHashNotUsable);
    if (group == kGroups.end()) return fail(kGroupNotUsable);
    hash_ = *hash;
    group_ = *group;
    state_ = State::kChallenge;
    return true;
  }
  return fail(kProtocolNotUsable);
}

Bytes Authentication::challenge() {
  challenge_ = random_bytes(hash_bytes(hash_));
  do {
    sequence_ = read_as<std::uint32_t>(random_bytes(4));
  } while (sequence_ == 0);  // 0 marks replies without a challenge
  dh_.reset();
  if (group_ != DhGroup::kNull) dh_.emplace(group_);
  const ByteView value = dh_ ? dh_->public_value() : ByteView();
  state_ = State::kReply;
  return message(Challenge{kDhchapType, kChallengeId, 0, transaction_, static_cast<std::uint8_t>(challenge_.size()), 0,
                           static_cast<std::uint8_t>(hash_), static_cast<std::uint8_t>(group_),
                           static_cast<std::uint16_t>(value.size()), sequence_},
                 {challenge_, value});
}

Bytes Authentication::response(const DhchapSecret& secret, std::string_view own, std::string_view other,
                               std::string_view role, ByteView challenge, std::uint32_t sequence) const {
  const Bytes augmented =
      session_.empty() ? Bytes(challenge.begin(), challenge.end()) : hmac(hash_, session_, {challenge});
  const std::byte zero{0};
  return hmac(hash_, secret.key_for(own),
              {augmented, little_endian(sequence), little_endian(transaction_), little_endian(concatenation_),
               view_of(role), view_of(own), ByteView(&zero, 1), view_of(other)});
}

bool Authentication::reply(ByteView bytes) {
  const std::size_t length = hash_bytes(hash_);
  if (bytes.size() < sizeof(Reply)) return fail(kPayloadIncorrect);
  const auto head = read_as<Reply>(bytes);
  if (head.hash_length != length || head.challenge_valid > 1 ||
      bytes.size() < sizeof(Reply) + 2 * length + head.dh_length) {
    return fail(kPayloadIncorrect);
  }
  const ByteView proof = bytes.subspan(sizeof(Reply), length);
  const ByteView host_challenge = bytes.subspan(sizeof(Reply) + length, length);
  const ByteView value = bytes.subspan(sizeof(Reply) + 2 * length, head.dh_length);
  session_.clear();
  if (dh_) {
    const Bytes secret = dh_->shared_secret(value);
    if (secret.empty()) return fail(kPayloadIncorrect);
    session_ = digest(hash_, secret);
  } else if (!value.empty()) {
    return fail(kPayloadIncorrect);
  }
  const Bytes expected =
      response(parties_.host, parties_.host_nqn, parties_.subsystem_nqn, "HostHost", challenge_, sequence_);
  challenge_.clear();  // each challenge is answered once
  if (!equal(proof, expected)) return fail(kAuthenticationFailed);
  controller_response_.clear();
  if (head.challenge_valid == 1) {
    // Without a secret of its own the controller cannot prove its identity.
    if (!parties_.controller || head.sequence == 0) return fail(kAuthenticationFailed);
    controller_response_ = response(*parties_.controller, parties_.subsystem_nqn, parties_.host_nqn, "Controller",
                                    host_challenge, head.sequence);
  }
  state_ = State::kSuccess;
  return true;
}

Bytes Authentication::success() {
  const bool proves = !controller_response_.empty();
  state_ = proves ? State::kConfirm : State::kDone;
  Success head{kDhchapType, kSuccess1Id, 0, transaction_, static_cast<std::uint8_t>(hash_bytes(hash_)), 0, proves, {}};
  return message(head, {controller_response_});
}

Bytes Authentication::next_message() {
  switch (state_) {
    case State::kChallenge:
      return challenge();
    case State::kSuccess:
      return success();
    case State::kFailure:
      state_ = State::kFailed;
      return message(Failure{kDhchapType, kFailure1Id, 0, transaction_, 1, reason_});
    default:
      return {};
  }
}

}  // namespace kvdrive::tcp
