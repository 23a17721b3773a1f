// SPDX-License-Identifier: Apache-2.0
// The queries of a job as integer weights, for products with the codes of K.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "common/abi.hpp"
#include "engine/fast/exact.hpp"
#include "engine/fast/kernels.hpp"

namespace kvdrive::fast {

// Finite queries [g][d]. A number is weight * unit + rest, with one unit for each head and part. The rest is 0 unless a
// number is about 2^20 times smaller than the largest one of its part.
class IntegerQuery {
 public:
  IntegerQuery(const Kernels& kernels, const std::uint16_t* q, unsigned g, unsigned d)
      : parts_(parts_of(d)),
        d_(d),
        digits_(std::size_t{g} * parts_ * abi::kFormatPart),
        unit_(g * parts_),
        base_(unit_),
        short_(g * parts_) {
    for (unsigned h = 0; h < g; ++h) {
      for (unsigned j = 0; j < parts_; ++j) set(kernels, part(q, h, j), h, j);
    }
  }

  CodeQuery view() const { return {digits_.data(), unit_.data(), base_.data(), short_.data(), d_}; }
  unsigned parts() const { return parts_; }
  // The smallest unit of a head.
  double unit(unsigned h) const { return *std::min_element(&unit_[h * parts_], &unit_[h * parts_] + parts_); }
  // The sum of |rest| of a head.
  double rest(unsigned h) const { return rest_[h]; }

 private:
  struct Part {
    std::int64_t numbers[abi::kFormatPart] = {};
    std::int64_t top = 0;
  };

  Part part(const std::uint16_t* q, unsigned h, unsigned j) const {
    Part found;
    for (unsigned i = 0; i < abi::kFormatPart && j * abi::kFormatPart + i < d_; ++i) {
      found.numbers[i] = fixed(q[h * d_ + j * abi::kFormatPart + i]);
      found.top = std::max(found.top, std::abs(found.numbers[i]));
    }
    return found;
  }

  static int shift_of(const Part& part, std::int32_t largest) {
    int shift = 0;
    while (part.top >> shift > largest) ++shift;
    return shift;
  }

  static bool fits_short(const Part& part) {
    const std::int64_t below = (std::int64_t{1} << shift_of(part, kLargestShortWeight)) - 1;
    return std::all_of(part.numbers, part.numbers + abi::kFormatPart, [&](auto x) { return (x & below) == 0; });
  }

  void set(const Kernels& kernels, const Part& part, unsigned h, unsigned j) {
    const std::size_t own = h * parts_ + j;
    short_[own] = kernels.digit_bits == 8 && fits_short(part) ? 1 : 0;
    const int shift = shift_of(part, short_[own] != 0 ? kLargestShortWeight : kLargestWeight);
    std::int32_t weights[abi::kFormatPart];
    std::int64_t sum = 0, rest = 0;
    for (unsigned i = 0; i < abi::kFormatPart; ++i) {
      const std::int64_t kept = part.numbers[i] / (std::int64_t{1} << shift);
      weights[i] = static_cast<std::int32_t>(kept);
      sum += kept;
      rest += std::abs(part.numbers[i] - kept * (std::int64_t{1} << shift));
    }
    kernels.to_digits(weights, abi::kFormatPart, digits_.data() + own * abi::kFormatPart);
    unit_[own] = std::ldexp(1.0, shift - 24);
    base_[own] = -unit_[own] * static_cast<double>(sum);
    rest_[h] += static_cast<double>(rest) * 0x1p-24;
  }

  unsigned parts_;
  unsigned d_;
  std::vector<std::int32_t> digits_;  // [g][parts][32]
  std::vector<double> unit_, base_;   // [g][parts]
  std::vector<std::uint8_t> short_;   // [g][parts]
  double rest_[abi::kMaxCommandGroup] = {};
};

}  // namespace kvdrive::fast
