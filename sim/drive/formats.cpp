// SPDX-License-Identifier: Apache-2.0
// Steps are powers of two (INT8) or four significant bits (INT4), so all arithmetic here is exact in binary32: a
// quotient of a binary16 number and a step is a tie only if it is exact.
#include "formats.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/abi.hpp"
#include "e4m3.hpp"
#include "kv/halves.hpp"

namespace kvdrive {
namespace {

constexpr unsigned kPart = abi::kFormatPart;
constexpr float kLargest = 65504;
constexpr int kInt8Most = 127, kInt8Exponents = 34;
constexpr int kInt4Codes = 15, kInt4Least = -128, kInt4Most = 127, kOctave = 8;

using Numbers = std::array<float, kPart>;

float widen(std::uint16_t half) {
  // Multiplying by 2^112 changes the exponent bias from binary16 to binary32, also for subnormals.
  const auto magnitude = std::bit_cast<float>((half & 0x7fffU) << 13) * 0x1p112F;
  return half & 0x8000 ? -magnitude : magnitude;
}

// The pattern of a number that binary16 holds.
std::uint16_t narrow(float exact) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(std::fabs(exact) * 0x1p-112F);
  const auto magnitude = static_cast<std::uint16_t>(bits >> 13);
  return exact < 0 ? static_cast<std::uint16_t>(magnitude | 0x8000) : magnitude;
}

float power(int exponent) { return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23); }

float step8(unsigned byte) { return power(static_cast<int>(byte) - 24); }
float step4(unsigned byte) { return static_cast<float>(8 + (byte & 7)) * power(static_cast<int>(byte >> 3) - 21); }

// x / step to the nearest integer, ties to even, within what binary16 holds. |x / step| < 2^22.
float quotient(float x, float step, float most) {
  constexpr float kRound = 0x1.8p23F;
  const float n = (x / step + kRound) - kRound;
  return std::clamp(n, -most, most);
}

// The largest multiple of a step that binary16 holds, in steps.
float most_steps(float step) { return std::floor(kLargest / step); }

struct Range {
  float least = 0, greatest = 0;
};

Range range_of(const Numbers& x, unsigned n) {
  Range range{x[0], x[0]};
  for (unsigned i = 1; i < n; ++i) {
    range.least = std::min(range.least, x[i]);
    range.greatest = std::max(range.greatest, x[i]);
  }
  return range;
}

void encode8(const Numbers& x, unsigned n, std::byte* codes, std::byte* step) {
  const Range range = range_of(x, n);
  const float largest = std::max(-range.least, range.greatest);
  // The exponent of the largest number less seven bits is the answer or one below it.
  const int own = largest == 0 ? 0 : std::ilogb(largest) + 24 - 7;
  int exponent = std::clamp(own, 0, kInt8Exponents - 1);
  const auto fits = [&](int e) {
    const float unit = step8(static_cast<unsigned>(e));
    return quotient(largest, unit, most_steps(unit)) <= kInt8Most;
  };
  while (!fits(exponent)) ++exponent;
  const float unit = step8(static_cast<unsigned>(exponent)), most = most_steps(unit);
  for (unsigned i = 0; i < n; ++i) {
    codes[i] = static_cast<std::byte>(static_cast<std::int8_t>(quotient(x[i], unit, most)));
  }
  *step = static_cast<std::byte>(exponent);
}

// The first step with which the codes of a range fit. Steps below `from` do not fit.
int first_step4(const Range& range, int from) {
  for (int byte = from;; ++byte) {
    const float step = step4(static_cast<unsigned>(byte)), most = most_steps(step);
    const float low = quotient(range.least, step, most), high = quotient(range.greatest, step, most);
    if (high - low <= kInt4Codes && low >= kInt4Least && high <= kInt4Most) return byte;
  }
}

// A byte whose step is so small that the codes of the range cannot fit, or 0.
int below_step4(const Range& range) {
  const float least = std::max({(range.greatest - range.least) / (kInt4Codes + 2), range.greatest / (kInt4Most + 1),
                                range.least / (kInt4Least - 1)});
  if (least < 0x1p-18F) return 0;
  const int exponent = std::ilogb(least);
  return std::clamp((exponent + 18) * 8, 0, 255);
}

void encode4(const Numbers& x, unsigned n, std::byte* codes, std::byte* part) {
  const Range range = range_of(x, n);
  const int first = first_step4(range, below_step4(range));
  Numbers best{};
  float best_low = 0;
  double least_error = INFINITY;
  int best_byte = first;
  for (int byte = first; byte < std::min(first + kOctave, 256); ++byte) {
    const float step = step4(static_cast<unsigned>(byte)), most = most_steps(step);
    const float low = quotient(range.least, step, most), high = quotient(range.greatest, step, most);
    if (high - low > kInt4Codes || low < kInt4Least || high > kInt4Most) continue;
    Numbers tried{};
    double error = 0;  // exact: each difference is a multiple of 2^-24 below 2^17
    for (unsigned i = 0; i < n; ++i) {
      tried[i] = quotient(x[i], step, most);
      error += std::fabs(double{tried[i] * step} - double{x[i]});
    }
    if (error < least_error) {
      least_error = error;
      best = tried;
      best_low = low;
      best_byte = byte;
    }
  }
  const float zero = std::min(best_low, static_cast<float>(kInt4Most - kInt4Codes));
  const auto code = [&](unsigned i) { return static_cast<unsigned>(best[i] - zero); };
  for (unsigned i = 0; i < n / 2; ++i) codes[i] = static_cast<std::byte>(code(i) | code(i + n / 2) << 4);
  part[0] = static_cast<std::byte>(best_byte);
  part[1] = static_cast<std::byte>(static_cast<std::int8_t>(zero));
}

// Calls use(first number, numbers, byte of the codes, byte of the part's own bytes) for each part of a row.
template <typename Use>
void each_part(RowFormat format, std::uint32_t head_dim, Use use) {
  const unsigned share = format == nvme::kInt8 ? 1 : 2;
  for (unsigned first = 0, part = head_dim / share; first < head_dim; first += kPart, part += share) {
    use(first, std::min(kPart, head_dim - first), first / share, part);
  }
}

unsigned byte_at(const std::byte* row, unsigned i) { return std::to_integer<unsigned>(row[i]); }
int signed_at(const std::byte* row, unsigned i) { return static_cast<std::int8_t>(byte_at(row, i)); }

// The codes of a part, with the zero added.
void integers(RowFormat format, const std::byte* row, unsigned n, unsigned codes, unsigned part, int* to) {
  if (format == nvme::kInt8) {
    for (unsigned i = 0; i < n; ++i) to[i] = signed_at(row, codes + i);
    return;
  }
  const int zero = signed_at(row, part + 1);
  for (unsigned i = 0; i < n / 2; ++i) {
    to[i] = static_cast<int>(byte_at(row, codes + i) & 15) + zero;
    to[i + n / 2] = static_cast<int>(byte_at(row, codes + i) >> 4) + zero;
  }
}

bool valid_e4m3(std::span<const std::byte> codes) {
  unsigned wrong = 0;
  for (const std::byte code : codes) {
    wrong |= static_cast<unsigned>((std::to_integer<unsigned>(code) & kE4m3Magnitude) == kE4m3Magnitude);
  }
  return wrong == 0;
}

void decode_e4m3(std::span<const std::byte> codes, std::uint16_t* out) {
  for (std::size_t i = 0; i < codes.size(); ++i) {
    out[i] = narrow(widen(e4m3_as_half(std::to_integer<std::uint8_t>(codes[i]))) * float{kE4m3Scale});
  }
}

void encode_e4m3(const std::uint16_t* halves, std::size_t numbers, std::byte* out) {
  for (std::size_t i = 0; i < numbers; ++i) out[i] = static_cast<std::byte>(e4m3_of(halves[i]));
}

}  // namespace

std::uint32_t head_dim_of(RowFormat format, std::uint32_t row_bytes) {
  if (format > nvme::kFp8) return 0;
  // Rows grow with the dimension, so at most one dimension fits.
  for (std::uint32_t d = abi::kCommandHeadDimStep; d <= abi::kMaxHeadDim; d += abi::kCommandHeadDimStep) {
    if (row_bytes_of(format, d) == row_bytes) return d;
  }
  return 0;
}

bool valid_rows(RowFormat format, std::uint32_t head_dim, std::span<const std::byte> rows) {
  if (format == nvme::kBinary16) return all_finite(rows);
  if (format == nvme::kFp8) return valid_e4m3(rows);
  const std::size_t row_bytes = row_bytes_of(format, head_dim);
  bool valid = true;
  for (std::size_t at = 0; at < rows.size(); at += row_bytes) {
    const std::byte* const row = rows.data() + at;
    each_part(format, head_dim, [&](unsigned, unsigned n, unsigned codes, unsigned part) {
      std::array<int, kPart> found{};
      integers(format, row, n, codes, part, found.data());
      const auto [least, greatest] = std::minmax_element(found.begin(), found.begin() + n);
      const unsigned step = byte_at(row, part);
      const bool int8 = format == nvme::kInt8;
      valid &= !int8 || step < kInt8Exponents;
      if (!valid) return;
      const float most = most_steps(int8 ? step8(step) : step4(step));
      valid &= static_cast<float>(std::max(-*least, *greatest)) <= most;
      valid &= int8 ? *least >= -kInt8Most : *greatest <= kInt4Most;
    });
  }
  return valid;
}

void decode_rows(RowFormat format, std::uint32_t head_dim, std::span<const std::byte> rows, std::uint16_t* out) {
  if (format == nvme::kBinary16) {
    std::memcpy(out, rows.data(), rows.size());
    return;
  }
  if (format == nvme::kFp8) return decode_e4m3(rows, out);
  const std::size_t row_bytes = row_bytes_of(format, head_dim);
  for (std::size_t at = 0; at < rows.size(); at += row_bytes, out += head_dim) {
    const std::byte* const row = rows.data() + at;
    each_part(format, head_dim, [&](unsigned first, unsigned n, unsigned codes, unsigned part) {
      std::array<int, kPart> found{};
      integers(format, row, n, codes, part, found.data());
      const float step = format == nvme::kInt8 ? step8(byte_at(row, part)) : step4(byte_at(row, part));
      for (unsigned i = 0; i < n; ++i) out[first + i] = narrow(static_cast<float>(found[i]) * step);
    });
  }
}

void encode_rows(RowFormat format, std::uint32_t head_dim, const std::uint16_t* halves, std::size_t rows,
                 std::byte* out) {
  if (format == nvme::kBinary16) {
    std::memcpy(out, halves, rows * head_dim * sizeof *halves);
    return;
  }
  if (format == nvme::kFp8) return encode_e4m3(halves, rows * head_dim, out);
  const std::size_t row_bytes = row_bytes_of(format, head_dim);
  for (std::size_t row = 0; row < rows; ++row, halves += head_dim, out += row_bytes) {
    each_part(format, head_dim, [&](unsigned first, unsigned n, unsigned codes, unsigned part) {
      Numbers x{};
      for (unsigned i = 0; i < n; ++i) x[i] = widen(halves[first + i]);
      (format == nvme::kInt8 ? encode8 : encode4)(x, n, out + codes, out + part);
    });
  }
}

}  // namespace kvdrive
