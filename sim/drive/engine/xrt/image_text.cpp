// SPDX-License-Identifier: Apache-2.0
#include "engine/xrt/image_text.hpp"

#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "common/abi.hpp"

namespace kvdrive {
namespace {

std::string sha256_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read the image " + path.string());
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> digest(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr);
  std::array<char, 1 << 16> part{};
  while (file.read(part.data(), part.size()) || file.gcount() > 0) {
    EVP_DigestUpdate(digest.get(), part.data(), static_cast<std::size_t>(file.gcount()));
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  unsigned size = 0;
  EVP_DigestFinal_ex(digest.get(), sum.data(), &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[sum[i] >> 4];
    text += kDigits[sum[i] & 15];
  }
  return text;
}

std::map<std::string, std::string> read_fields(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path.string() + " is missing: `make link` writes it beside the image");
  std::map<std::string, std::string> fields;
  for (std::string line; std::getline(file, line);) {
    const auto equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    std::string value = line.substr(equals + 3);
    if (value.size() >= 2 && value.front() == '"') value = value.substr(1, value.size() - 2);
    fields[line.substr(0, equals)] = value;
  }
  return fields;
}

std::uint32_t number(const std::string& text) {
  std::uint32_t value = 0;
  std::istringstream(text) >> value;
  return value;
}

}  // namespace

ImageText read_image_text(const std::filesystem::path& image) {
  const auto fields = read_fields(image.string() + ".toml");
  const auto field = [&](const char* name) {
    const auto found = fields.find(name);
    if (found == fields.end()) throw std::runtime_error(image.string() + ".toml does not say its " + name);
    return found->second;
  };
  ImageText text;
  text.platform = field("platform");
  text.sha256 = field("sha256");
  text.abi_version = number(field("abi_version"));
  text.bank = static_cast<std::int32_t>(number(field("bank")));
  std::istringstream units(field("units"));
  for (std::string unit; units >> unit;) {
    const auto colon = unit.find(':');
    text.units.push_back({unit.substr(0, colon), unit.substr(colon + 1)});
  }
  if (text.abi_version != abi::kAbiVersion) {
    throw std::runtime_error(image.string() + " was built for version " + std::to_string(text.abi_version) +
                             " of the job layout, this program has version " + std::to_string(abi::kAbiVersion) +
                             ": build the image again");
  }
  if (sha256_of(image) != text.sha256) {
    throw std::runtime_error(image.string() + " is not the image that its text describes: run `make link` again");
  }
  return text;
}

}  // namespace kvdrive
