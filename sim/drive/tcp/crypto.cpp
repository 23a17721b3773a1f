// SPDX-License-Identifier: Apache-2.0
#include "tcp/crypto.hpp"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <zlib.h>

#include <array>
#include <stdexcept>
#include <string>

namespace kvdrive::tcp {
namespace {

void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string("libcrypto: ") + what + " failed");
}

const char* name_of(Hash hash) {
  constexpr std::array kNames{"SHA256", "SHA384", "SHA512"};
  return kNames.at(static_cast<std::size_t>(hash) - 1);
}

const char* name_of(DhGroup group) {
  constexpr std::array kNames{"ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"};
  return kNames.at(static_cast<std::size_t>(group) - 1);
}

using PkeyContext = std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)>;

unsigned char* raw(Bytes& bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }
const unsigned char* raw(ByteView bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

}  // namespace

std::size_t hash_bytes(Hash hash) { return 16 + 16 * static_cast<std::size_t>(hash); }

ByteView view_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Bytes digest(Hash hash, ByteView data) {
  Bytes result(hash_bytes(hash));
  std::size_t size = result.size();
  require(EVP_Q_digest(nullptr, name_of(hash), nullptr, data.data(), data.size(), raw(result), &size) == 1, "digest");
  return result;
}

Bytes hmac(Hash hash, ByteView key, std::initializer_list<ByteView> pieces) {
  Bytes message;
  for (const ByteView piece : pieces) message.insert(message.end(), piece.begin(), piece.end());
  Bytes result(hash_bytes(hash));
  std::size_t size = 0;
  require(EVP_Q_mac(nullptr, "HMAC", nullptr, name_of(hash), nullptr, key.data(), key.size(), raw(message),
                    message.size(), raw(result), result.size(), &size) != nullptr,
          "HMAC");
  return result;
}

Bytes random_bytes(std::size_t count) {
  Bytes result(count);
  require(RAND_bytes(raw(result), static_cast<int>(count)) == 1, "random generator");
  return result;
}

std::optional<Bytes> base64_decoded(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string padded(text);
  padded.resize((text.size() + 3) / 4 * 4, '=');
  Bytes result(padded.size() / 4 * 3);
  const auto* digits = reinterpret_cast<const unsigned char*>(padded.data());
  const int size = EVP_DecodeBlock(raw(result), digits, static_cast<int>(padded.size()));
  if (size < 0) return std::nullopt;
  result.resize(text.size() * 3 / 4);
  return result;
}

std::uint32_t crc32(ByteView data) {
  return static_cast<std::uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
}

bool equal(ByteView a, ByteView b) { return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

DhKey::DhKey(DhGroup group) : group_(group) {
  const PkeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, "DH", nullptr), &EVP_PKEY_CTX_free);
  EVP_PKEY* key = nullptr;
  std::string name = name_of(group);
  const std::array<OSSL_PARAM, 2> parameters{
      OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, name.data(), 0), OSSL_PARAM_construct_end()};
  require(context && EVP_PKEY_keygen_init(context.get()) == 1 &&
              EVP_PKEY_CTX_set_params(context.get(), parameters.data()) == 1 &&
              EVP_PKEY_generate(context.get(), &key) == 1,
          "key generation");
  key_.reset(key, &EVP_PKEY_free);
  unsigned char* encoded = nullptr;
  const std::size_t size = EVP_PKEY_get1_encoded_public_key(key_.get(), &encoded);
  require(size != 0, "public value");
  const auto* bytes = reinterpret_cast<const std::byte*>(encoded);
  public_.assign(bytes, bytes + size);
  OPENSSL_free(encoded);
}

Bytes DhKey::shared_secret(ByteView peer) const {
  const PkeyContext parameters(EVP_PKEY_CTX_new_from_name(nullptr, "DH", nullptr), &EVP_PKEY_CTX_free);
  std::string group = name_of(group_);
  std::array<OSSL_PARAM, 2> description{OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group.data(), 0),
                                        OSSL_PARAM_construct_end()};
  EVP_PKEY* other = nullptr;
  require(parameters && EVP_PKEY_fromdata_init(parameters.get()) == 1 &&
              EVP_PKEY_fromdata(parameters.get(), &other, EVP_PKEY_KEY_PARAMETERS, description.data()) == 1,
          "group parameters");
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> holder(other, &EVP_PKEY_free);
  if (EVP_PKEY_set1_encoded_public_key(other, raw(peer), peer.size()) != 1) return {};

  const PkeyContext context(EVP_PKEY_CTX_new_from_pkey(nullptr, key_.get(), nullptr), &EVP_PKEY_CTX_free);
  std::size_t size = 0;
  // derive_set_peer checks that the value belongs to the group. Leading zeros are kept, so that both sides hash the
  // same bytes.
  unsigned int pad = 1;
  const std::array<OSSL_PARAM, 2> options{OSSL_PARAM_construct_uint(OSSL_EXCHANGE_PARAM_PAD, &pad),
                                          OSSL_PARAM_construct_end()};
  if (!context || EVP_PKEY_derive_init_ex(context.get(), options.data()) != 1 ||
      EVP_PKEY_derive_set_peer(context.get(), other) != 1 || EVP_PKEY_derive(context.get(), nullptr, &size) != 1) {
    return {};
  }
  Bytes secret(size);
  if (EVP_PKEY_derive(context.get(), raw(secret), &size) != 1) return {};
  secret.resize(size);
  return secret;
}

}  // namespace kvdrive::tcp
