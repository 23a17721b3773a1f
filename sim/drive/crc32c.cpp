// SPDX-License-Identifier: Apache-2.0
#include "crc32c.hpp"

#include <array>
#include <cstring>

#include "crc32c_fold.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace kvdrive {
namespace {

constexpr std::size_t kSlices = 8;
using Tables = std::array<std::array<std::uint32_t, 256>, kSlices>;

// tables[n][b] is the CRC of byte b followed by n zero bytes, so that eight bytes take eight independent look-ups.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? kCrc32cPolynomial : 0);
    tables[0][b] = crc;
  }
  for (std::size_t n = 1; n < kSlices; ++n) {
    for (std::uint32_t b = 0; b < 256; ++b) {
      const std::uint32_t crc = tables[n - 1][b];
      tables[n][b] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint32_t with_tables(std::uint32_t crc, std::span<const std::byte> data) {
  std::size_t i = 0;
  const auto byte = [&data](std::size_t at) { return std::to_integer<std::uint32_t>(data[at]); };
  for (; i + kSlices <= data.size(); i += kSlices) {
    std::uint32_t next = 0;
    for (std::size_t n = 0; n < 4; ++n) next ^= kTables[7 - n][((crc >> (8 * n)) ^ byte(i + n)) & 0xff];
    for (std::size_t n = 4; n < 8; ++n) next ^= kTables[7 - n][byte(i + n)];
    crc = next;
  }
  for (; i < data.size(); ++i) crc = (crc >> 8) ^ kTables[0][(crc ^ byte(i)) & 0xff];
  return crc;
}

#if defined(__x86_64__)

// The processor's instruction takes eight bytes and has a latency of three cycles. Three independent lanes keep it
// busy; tables then combine their CRCs. Three lanes cover almost a page.
constexpr std::size_t kLaneBytes = 1360;
using Shift = std::array<std::array<std::uint32_t, 256>, 4>;

// shift[n][b] is the CRC register after kLaneBytes zero bytes, if its byte n was b and its other bytes were 0.
constexpr Shift make_shift() {
  std::array<std::uint32_t, 32> bits{};
  for (std::size_t i = 0; i < 8; ++i) {
    std::uint32_t crc = 1U << i;
    for (std::size_t left = kLaneBytes; left > 0; --left) {
      if (left < 4) bits[8 * left + i] = crc;
      crc = (crc >> 8) ^ kTables[0][crc & 0xff];
    }
    bits[i] = crc;
  }
  Shift shift{};
  for (std::size_t n = 0; n < shift.size(); ++n) {
    for (std::size_t b = 0; b < 256; ++b) {
      for (std::size_t i = 0; i < 8; ++i) shift[n][b] ^= b >> i & 1 ? bits[8 * n + i] : 0;
    }
  }
  return shift;
}

constexpr Shift kShift = make_shift();

std::uint32_t over_a_lane(std::uint64_t crc) {
  return kShift[0][crc & 0xff] ^ kShift[1][crc >> 8 & 0xff] ^ kShift[2][crc >> 16 & 0xff] ^ kShift[3][crc >> 24 & 0xff];
}

__attribute__((target("sse4.2"))) std::uint32_t with_instruction(std::uint32_t start, std::span<const std::byte> data) {
  const auto word = [](const std::byte* at) {
    std::uint64_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  std::uint64_t crc = start;
  const std::byte* at = data.data();
  std::size_t left = data.size();
  for (; left >= 3 * kLaneBytes; left -= 3 * kLaneBytes, at += 3 * kLaneBytes) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t i = 0; i < kLaneBytes; i += 8) {
      crc = _mm_crc32_u64(crc, word(at + i));
      second = _mm_crc32_u64(second, word(at + kLaneBytes + i));
      third = _mm_crc32_u64(third, word(at + 2 * kLaneBytes + i));
    }
    crc = over_a_lane(over_a_lane(crc) ^ second) ^ third;
  }
  for (; left >= 8; left -= 8, at += 8) crc = _mm_crc32_u64(crc, word(at));
  for (; left > 0; --left, ++at)
    crc = _mm_crc32_u8(static_cast<std::uint32_t>(crc), std::to_integer<std::uint8_t>(*at));
  return static_cast<std::uint32_t>(crc);
}

const bool kHasInstruction = __builtin_cpu_supports("sse4.2");

#elif defined(__aarch64__)

__attribute__((target("+crc"))) std::uint32_t with_instruction(std::uint32_t crc, std::span<const std::byte> data) {
  const std::byte* at = data.data();
  std::size_t left = data.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    crc = __crc32cd(crc, word);
  }
  for (; left > 0; --left, ++at) crc = __crc32cb(crc, std::to_integer<std::uint8_t>(*at));
  return crc;
}

constexpr unsigned long kCrcInstructions = 1 << 7;  // HWCAP_CRC32
const bool kHasInstruction = (getauxval(AT_HWCAP) & kCrcInstructions) != 0;

#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> data) {
  std::uint32_t crc = ~0U;
  if (const std::size_t blocks = data.size() / kFoldBytes; blocks > 0 && can_fold_crc32c()) {
    crc = fold_crc32c(crc, data.data(), blocks);
    data = data.subspan(blocks * kFoldBytes);
  }
#if defined(__x86_64__) || defined(__aarch64__)
  if (kHasInstruction) return ~with_instruction(crc, data);
#endif
  return ~with_tables(crc, data);
}

std::uint32_t crc32c_portable(std::span<const std::byte> data) { return ~with_tables(~0U, data); }

}  // namespace kvdrive
