// SPDX-License-Identifier: Apache-2.0
// Words and lanes shared by all kernels. Lane 0 is the least significant end of a word.
#pragma once

#include <ap_int.h>

#include "common/abi.hpp"

#if defined(__SYNTHESIS__) || defined(__VITIS_HLS__)
#define KVDRIVE_SYNTHESIS 1
#else
#include <cstring>
#endif

namespace kvdrive {

using beat_t = ap_uint<abi::kBeatBits>;
using half_t = ap_uint<16>;    // binary16 pattern
using single_t = ap_uint<32>;  // binary32 pattern
using score_t = ap_int<32>;    // Q12.20

// Lane `index` of `word`, in lanes of kWidth bits (8, 16, 32 or 64 of a word longer than 64 bits).
// Software copies the bytes: extracting 16 of 512 bits through the vendor's class takes longer than a multiplication.
template <int kWidth, int kWord>
ap_uint<kWidth> lane(const ap_uint<kWord>& word, int index) {
#pragma HLS INLINE
  static_assert(kWidth == 8 || kWidth == 16 || kWidth == 32 || kWidth == 64, "a lane is a machine word");
  static_assert(kWord > 64, "shorter words have no bytes in order");
#ifdef KVDRIVE_SYNTHESIS
  return word.range(kWidth * index + kWidth - 1, kWidth * index);
#else
  static_assert(sizeof(word) == (kWord + 63) / 64 * 8, "the word is only its bytes");
  unsigned long long value = 0;
  std::memcpy(&value, reinterpret_cast<const unsigned char*>(&word) + kWidth / 8 * index, kWidth / 8);
  return value;
#endif
}

template <int kWidth, int kWord>
void set_lane(ap_uint<kWord>& word, int index, ap_uint<kWidth> value) {
#pragma HLS INLINE
  static_assert(kWidth == 8 || kWidth == 16 || kWidth == 32 || kWidth == 64, "a lane is a machine word");
  static_assert(kWord > 64, "shorter words have no bytes in order");
#ifdef KVDRIVE_SYNTHESIS
  word.range(kWidth * index + kWidth - 1, kWidth * index) = value;
#else
  static_assert(sizeof(word) == (kWord + 63) / 64 * 8, "the word is only its bytes");
  const unsigned long long bits = value.to_uint64();
  std::memcpy(reinterpret_cast<unsigned char*>(&word) + kWidth / 8 * index, &bits, kWidth / 8);
#endif
}

// Bit `index` of `word` as a multiplexer; the vendor's operator [] is a decoder and a gate for each bit.
template <int kWord>
bool bit_at(const ap_uint<kWord>& word, int index) {
#pragma HLS INLINE
#ifdef KVDRIVE_SYNTHESIS
  return ap_uint<1>(word >> index) != 0;
#else
  return word[index];
#endif
}

inline half_t half_lane(const beat_t& beat, int index) {
#pragma HLS INLINE
  return lane<16>(beat, index);
}

inline single_t single_lane(const beat_t& beat, int index) {
#pragma HLS INLINE
  return lane<32>(beat, index);
}

}  // namespace kvdrive
