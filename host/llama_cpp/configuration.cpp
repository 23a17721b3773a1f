// SPDX-License-Identifier: Apache-2.0
#include "configuration.hpp"

#include <algorithm>
#include <cctype>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>

namespace kvdrive::llama {
namespace {

constexpr std::uint64_t kLeastCapacity = 4 << 20;
constexpr const char* kDefaultCapacity = "16G";
constexpr const char* kDefaultCache = "1G";

struct NamedFormat {
  std::string_view name;
  RowFormat format;
};
constexpr NamedFormat kFormats[] = {{"f16", nvme::kBinary16}, {"int8", nvme::kInt8}, {"int4", nvme::kInt4}};

std::optional<std::uint64_t> whole_number(std::string_view text) {
  if (text.empty() || text.size() > 18 ||
      !std::all_of(text.begin(), text.end(), [](unsigned char digit) { return std::isdigit(digit) != 0; })) {
    return std::nullopt;
  }
  return std::stoull(std::string(text));
}

// A number with one of the letters K, M, G and T behind it, powers of 1024.
std::uint64_t bytes_of(const char* name, const std::string& text) {
  constexpr std::string_view kUnits = "KMGT";
  std::string_view digits = text;
  unsigned shift = 0;
  if (!digits.empty()) {
    const std::size_t unit = kUnits.find(digits.back());
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(unit) + 1);
      digits.remove_suffix(1);
    }
  }
  const auto number = whole_number(digits);
  if (!number || *number > std::numeric_limits<std::uint64_t>::max() >> 1 >> shift) {
    throw std::runtime_error(std::string(name) + "=" + text + " is no size: write a number and K, M, G or T");
  }
  return *number << shift;
}

constexpr std::string_view kSocket = ".sock";  // the end of a socket's name

std::filesystem::path drive_of(const char* text) {
  if (text == nullptr || *text == '\0') throw std::runtime_error("set KVDRIVE_DRIVE to the drive's file");
  const std::string name = text;
  if (name.find("://") != std::string::npos || name.starts_with("nvme:")) {
    throw std::runtime_error("KVDRIVE_DRIVE=" + name +
                             " is a drive elsewhere, which llama.cpp cannot use yet: name a file, or the socket of "
                             "`kvdrive drive serve FILE --socket PATH.sock`");
  }
  if (name.find(',') != std::string::npos) {
    throw std::runtime_error("KVDRIVE_DRIVE=" + name +
                             " names several drives, which llama.cpp cannot use yet: name one, without a comma");
  }
  const std::filesystem::path path = name;
  std::error_code ignored;
  if (name.ends_with(kSocket)) {
    if (!std::filesystem::is_socket(path, ignored)) {
      throw std::runtime_error("no drive is served at KVDRIVE_DRIVE=" + name +
                               ": start `kvdrive drive serve FILE --socket " + name + "`");
    }
    return path;
  }
  const auto folder = std::filesystem::absolute(path).parent_path();
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw std::runtime_error("KVDRIVE_DRIVE=" + name + " lies in no folder that exists: make " + folder.string());
  }
  return path;
}

// Throws for what the server of a drive decides.
void check_served(const Lookup& lookup) {
  for (const char* name : {"KVDRIVE_CAPACITY", "KVDRIVE_CACHE", "KVDRIVE_THREADS"}) {
    const char* text = lookup(name);
    if (text != nullptr && *text != '\0') {
      throw std::runtime_error(std::string(name) + " is decided where the drive is served: leave it out here");
    }
  }
}

RowFormat format_of(const std::string& text) {
  for (const NamedFormat& known : kFormats) {
    if (text == known.name) return known.format;
  }
  throw std::runtime_error("KVDRIVE_FORMAT=" + text + " is no format: use f16, int8 or int4");
}

// A number from 0 to 1 as a fraction, written as 1/8 or 0.125.
struct Fraction {
  std::uint64_t numerator = 0, denominator = 1;
};
std::optional<Fraction> fraction_of(const std::string& text) {
  constexpr std::uint64_t kMost = 1'000'000;
  Fraction found;
  const std::size_t slash = text.find('/'), point = text.find('.');
  if (slash != std::string::npos) {
    const auto above = whole_number(text.substr(0, slash)), below = whole_number(text.substr(slash + 1));
    if (!above || !below) return std::nullopt;
    found = {*above, *below};
  } else {
    const std::string decimals = point == std::string::npos ? "" : text.substr(point + 1);
    const auto digits = whole_number(text.substr(0, std::min(point, text.size())) + decimals);
    if (!digits || decimals.size() > 6) return std::nullopt;
    found.numerator = *digits;
    for (std::size_t i = 0; i < decimals.size(); ++i) found.denominator *= 10;
  }
  if (found.denominator == 0 || found.denominator > kMost || found.numerator > found.denominator) return std::nullopt;
  return found;
}

// `value`: of a variable, or what is given for one that is not set.
template <typename Value>
Policy policy_of(const Value& value) {
  constexpr std::uint64_t kLimitOne = 1 << 16;
  const std::string name = value("KVDRIVE_ATTENTION", "exact");
  const std::string ratio = value("KVDRIVE_RATIO", ""), unread = value("KVDRIVE_UNREAD", "");
  if (name == "exact") {
    if (!ratio.empty() || !unread.empty()) {
      throw std::runtime_error(
          "exact attention reads everything: set KVDRIVE_ATTENTION=groups, or leave KVDRIVE_RATIO "
          "and KVDRIVE_UNREAD out");
    }
    return {};
  }
  if (name != "groups") throw std::runtime_error("KVDRIVE_ATTENTION=" + name + " is no policy: use exact or groups");
  const auto share = fraction_of(ratio);
  if (!share || share->numerator == 0) {
    throw std::runtime_error("KVDRIVE_RATIO=" + ratio + " is no share in (0, 1]: write it as 1/8 or 0.125");
  }
  const auto limit = fraction_of(unread.empty() ? "0" : unread);
  if (!limit || limit->numerator == limit->denominator) {
    throw std::runtime_error("KVDRIVE_UNREAD=" + unread + " is no share in [0, 1): write it as 0.01");
  }
  Policy policy{.groups = true, .numerator = share->numerator, .denominator = share->denominator};
  if (limit->numerator > 0) {
    const std::uint64_t rounded = (2 * limit->numerator * kLimitOne + limit->denominator) / (2 * limit->denominator);
    policy.limit = static_cast<std::uint16_t>(std::clamp<std::uint64_t>(rounded, 1, kLimitOne - 1));
  }
  return policy;
}

int threads_of(const std::string& text) {
  const auto number = whole_number(text);
  if (!number || *number < 1 || *number > 256) {
    throw std::runtime_error("KVDRIVE_THREADS=" + text + " is no number from 1 to 256");
  }
  return static_cast<int>(*number);
}

}  // namespace

Configuration read_configuration(const Lookup& lookup) {
  const auto value = [&lookup](const char* name, const std::string& otherwise) {
    const char* text = lookup(name);
    return text == nullptr || *text == '\0' ? otherwise : std::string(text);
  };
  Configuration configuration;
  configuration.drive = drive_of(lookup("KVDRIVE_DRIVE"));
  configuration.served = configuration.drive.string().ends_with(kSocket);
  if (configuration.served) check_served(lookup);
  configuration.format = format_of(value("KVDRIVE_FORMAT", "f16"));
  configuration.policy = policy_of(value);
  configuration.capacity_bytes = bytes_of("KVDRIVE_CAPACITY", value("KVDRIVE_CAPACITY", kDefaultCapacity));
  if (configuration.capacity_bytes < kLeastCapacity) {
    throw std::runtime_error("KVDRIVE_CAPACITY is less than 4M, too little for any model");
  }
  configuration.cache_bytes = bytes_of("KVDRIVE_CACHE", value("KVDRIVE_CACHE", kDefaultCache));
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  configuration.threads = threads_of(value("KVDRIVE_THREADS", std::to_string(std::min(cores, 256U))));
  configuration.statistics = value("KVDRIVE_STATISTICS", "");
  return configuration;
}

}  // namespace kvdrive::llama
