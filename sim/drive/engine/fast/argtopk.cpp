// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/argtopk.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/fast/job.hpp"

namespace kvdrive::fast {
namespace {

// The k-th largest number, and how many of the numbers equal to it belong to the k largest.
struct Threshold {
  std::uint32_t value = 0;
  std::uint32_t equal = 0;
};

struct Digit {
  unsigned shift;
  unsigned bits;

  std::uint32_t of(std::uint32_t number) const { return (number >> shift) & ((1u << bits) - 1); }
};
constexpr unsigned kDigitBits = 11;
constexpr Digit kDigits[] = {{21, kDigitBits}, {10, kDigitBits}, {0, 10}};

// Finds the digit of the number that has `rank` - 1 larger ones before it. Sets `rank` to its rank among the numbers
// with this digit.
std::uint32_t digit_of_rank(std::span<const std::uint32_t> numbers, Digit digit, std::uint32_t& rank) {
  constexpr unsigned kWays =
      4;  // neighbours often share a digit: with a single count, each store would wait for the one before
  std::array<std::array<std::uint32_t, kWays>, 1u << kDigitBits> histogram{};
  for (std::size_t i = 0; i < numbers.size(); ++i) ++histogram[digit.of(numbers[i])][i % kWays];
  for (std::uint32_t value = (1u << digit.bits) - 1;; --value) {
    const std::uint32_t count = std::accumulate(histogram[value].begin(), histogram[value].end(), 0u);
    if (rank <= count) return value;
    rank -= count;
  }
}

Threshold find_threshold(std::span<const std::uint32_t> order, std::uint32_t k) {
  Threshold threshold{0, k};
  std::vector<std::uint32_t> candidates(order.size());
  for (const Digit digit : kDigits) {
    const std::uint32_t value = digit_of_rank(order, digit, threshold.equal);
    threshold.value |= value << digit.shift;
    std::size_t kept = 0;  // every number is written; those with the digit are kept
    for (const std::uint32_t number : order) {
      candidates[kept] = number;
      kept += digit.of(number) == value ? 1 : 0;
    }
    order = {candidates.data(), kept};
  }
  return threshold;
}

// Returns false if a key is Inf or NaN.
bool read_keys(const void* keys, std::uint32_t n, abi::KeyType type, std::vector<std::uint32_t>& order) {
  order.resize(n);
  std::uint32_t most = 0;
  if (type == abi::kMagnitude16) {
    const auto* patterns = static_cast<const std::uint16_t*>(keys);
    for (std::uint32_t i = 0; i < n; ++i) {
      order[i] = patterns[i] & 0x7fffu;
      most = std::max(most, order[i]);
    }
    return most < 0x7c00;
  }
  const auto* patterns = static_cast<const std::uint32_t*>(keys);
  for (std::uint32_t i = 0; i < n; ++i) {
    order[i] = order_of_single(patterns[i]);
    most = std::max(most, patterns[i] & 0x7fffffffu);
  }
  return most < 0x7f800000;
}

}  // namespace

std::vector<std::uint32_t> largest_indices(std::span<const std::uint32_t> order, std::uint32_t k) {
  Threshold threshold = find_threshold(order, k);
  std::vector<std::uint32_t> indices;
  indices.reserve(k);
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    if (order[i] < threshold.value) continue;
    if (order[i] == threshold.value) {
      if (threshold.equal == 0) continue;
      --threshold.equal;
    }
    indices.push_back(i);
  }
  return indices;
}

ArgtopkResult argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type) {
  ArgtopkResult result;
  result.status = check_tokens(n) | bit_if(k < 1 || k > std::min(n, std::uint32_t{abi::kMaxTopK}), abi::kBadK);
  if (result.status != 0) return result;
  std::vector<std::uint32_t> order;
  if (!read_keys(keys, n, type, order)) {
    result.status = abi::kNonFinite;
    return result;
  }
  result.indices = largest_indices(order, k);
  result.bitmap.resize(bitmap_bytes(n));
  for (const std::uint32_t i : result.indices) result.bitmap[i >> 3] |= static_cast<std::uint8_t>(1u << (i & 7));
  return result;
}

}  // namespace kvdrive::fast
