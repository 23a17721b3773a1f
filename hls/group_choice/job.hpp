// SPDX-License-Identifier: Apache-2.0
// The descriptor GroupChoiceJob: decoding, and every check of docs/jobs.md. It is checked as an AttentionJob is.
#pragma once

#include "attention/block.hpp"
#include "attention/job.hpp"
#include "common/abi.hpp"

namespace kvdrive {
namespace group_choice {

using attention::status_t;
using descriptor_t = ap_uint<8 * sizeof(abi::GroupChoiceJob)>;

constexpr int kMinUnit = abi::kUnitTokens[0];
constexpr int kMaxUnits = abi::kMaxTokens / kMinUnit;
constexpr int kMaxChunks = abi::kMaxHeadDim / abi::kLanes;

// The fields as they lie in memory.
struct Descriptor {
  ap_uint<16> version;
  ap_uint<8> group;
  ap_uint<8> unit;
  ap_uint<16> head_dim;
  ap_uint<16> exponent;
  ap_uint<32> tokens;
  ap_uint<32> inline_tokens;
  ap_uint<32> k_top;
  ap_uint<32> scale_log2e;
  ap_uint<64> q;
  ap_uint<64> index;
  ap_uint<64> inline_scores;
  ap_uint<64> valid;
  ap_uint<64> out;
  ap_uint<64> result;
};

// A job that passed its checks. `rows` describes its operands as those of an exact job without V, whose K is the index.
struct Job {
  attention::ExactJob rows;
  ap_uint<13> spans;
  ap_uint<3> unit_bits;  // log2 of the tokens of a unit
  ap_uint<14> units;
  ap_uint<14> k_top;
  ap_uint<6> exponent;
};

template <int kWidth>
ap_uint<kWidth> field(const descriptor_t& words, int first_bit) {
#pragma HLS INLINE
  return lane<kWidth>(words, first_bit / kWidth);
}

inline Descriptor decode(const beat_t& first, const beat_t& second) {
#pragma HLS INLINE
  namespace at = abi::groupchoicejob_bit;
  const descriptor_t words = (descriptor_t(second) << abi::kBeatBits) | first;
  Descriptor d;
  d.version = field<16>(words, at::kVersion);
  d.group = field<8>(words, at::kGroup);
  d.unit = field<8>(words, at::kUnit);
  d.head_dim = field<16>(words, at::kHeadDim);
  d.exponent = field<16>(words, at::kExponent);
  d.tokens = field<32>(words, at::kTokens);
  d.inline_tokens = field<32>(words, at::kInlineTokens);
  d.k_top = field<32>(words, at::kKTop);
  d.scale_log2e = field<32>(words, at::kScaleLog2e);
  d.q = field<64>(words, at::kQ);
  d.index = field<64>(words, at::kIndex);
  d.inline_scores = field<64>(words, at::kInlineScores);
  d.valid = field<64>(words, at::kValid);
  d.out = field<64>(words, at::kOut);
  d.result = field<64>(words, at::kResult);
  return d;
}

// Log2 of the tokens of a unit; 0 for numbers that are no unit.
inline ap_uint<3> unit_bits(ap_uint<8> unit) {
#pragma HLS INLINE
  ap_uint<3> bits = 0;
  for (int i = 0; i < 4; ++i) {
#pragma HLS UNROLL
    if (unit == abi::kUnitTokens[i]) bits = 4 + i;
  }
  return bits;
}

inline ap_uint<33> units_of(const Descriptor& d) {
#pragma HLS INLINE
  const ap_uint<3> bits = unit_bits(d.unit);
  return (ap_uint<33>(d.tokens) + ((1 << bits.to_int()) - 1)) >> bits.to_int();
}

inline bool is_built(ap_uint<16> head_dim) {
#pragma HLS INLINE
  bool built = false;
  for (int i = 0; i < 4; ++i) {
#pragma HLS UNROLL
    built |= head_dim == abi::kChoiceHeadDims[i];
  }
  return built;
}

inline status_t check_numbers(const Descriptor& d, int group) {
#pragma HLS INLINE
  const ap_uint<33> length = ap_uint<33>(d.tokens) + d.inline_tokens;
  const bool unit = unit_bits(d.unit) != 0;
  status_t status = 0;
  if (d.version != abi::kAbiVersion) status |= abi::kBadVersion;
  if (d.group != group) status |= abi::kBadGroup;
  if (!is_built(d.head_dim)) status |= abi::kBadHeadDim;
  if (d.tokens == 0 || d.tokens % abi::kSpanTokens != 0 || length > abi::kMaxTokens) status |= abi::kBadLength;
  if (!unit) status |= abi::kBadUnit;
  if (unit && (d.k_top == 0 || d.k_top > units_of(d))) status |= abi::kBadK;
  if (d.exponent < abi::kMinIndexExponent || d.exponent > abi::kMaxIndexExponent) status |= abi::kBadExponent;
  if (ap_uint<8>(d.scale_log2e >> 23) == 0xff) status |= abi::kBadScale;
  return status;
}

// Bytes of the index: 10 for each channel of a span.
inline ap_uint<57> index_bytes(const Descriptor& d) {
#pragma HLS INLINE
  const ap_uint<43> channels = ap_uint<27>(d.tokens / abi::kSpanTokens) * d.head_dim;
  return ap_uint<57>(channels) * 10;
}

inline status_t check_arrays(const Descriptor& d, ap_uint<64> memory_beats) {
#pragma HLS INLINE
  const ap_uint<57> bitmap = ap_uint<57>((ap_uint<33>(d.tokens) + 511) / 512) * abi::kBeatBytes;
  const ap_uint<57> marks = ap_uint<57>((units_of(d) + 511) / 512) * abi::kBeatBytes;
  const ap_uint<57> inline_bytes = ap_uint<57>(((ap_uint<33>(d.inline_tokens) + 15) / 16) * d.group) * abi::kBeatBytes;
  status_t status = attention::check_array(d.q, ap_uint<57>(d.group * d.head_dim) * 2, memory_beats);
  status |= attention::check_array(d.index, index_bytes(d), memory_beats);
  status |= attention::check_array(d.inline_scores, inline_bytes, memory_beats);
  if (d.valid != 0) status |= attention::check_array(d.valid, bitmap, memory_beats);
  if (unit_bits(d.unit) != 0) status |= attention::check_array(d.out, marks, memory_beats);
  return status | attention::check_array(d.result, sizeof(abi::GroupChoiceResult), memory_beats);
}

// Only for descriptors that passed their checks.
inline Job to_job(const Descriptor& d) {
#pragma HLS INLINE
  Job job;
  job.rows.mode = abi::kExact;
  job.rows.heads = d.group;
  job.rows.row_beats = d.head_dim / abi::kLanes;
  job.rows.head_dim = d.head_dim;
  job.rows.r = 0;
  job.rows.tokens = d.tokens;
  job.rows.inline_tokens = d.inline_tokens;
  job.rows.k_top = 0;
  job.rows.local = 0;
  job.rows.count = 0;
  job.rows.k_beats = index_bytes(d) / abi::kBeatBytes;
  job.rows.inline_v_beats = 0;
  job.rows.masked = d.valid != 0;
  job.rows.scale_log2e = d.scale_log2e;
  job.rows.q = d.q / abi::kBeatBytes;
  job.rows.k = d.index / abi::kBeatBytes;
  job.rows.v = 0;
  job.rows.inline_scores = d.inline_scores / abi::kBeatBytes;
  job.rows.inline_v = 0;
  job.rows.valid = d.valid / abi::kBeatBytes;
  job.rows.rows = 0;
  job.rows.v_sum = 0;
  job.rows.out = d.out / abi::kBeatBytes;
  job.rows.result = d.result / abi::kBeatBytes;
  job.spans = d.tokens / abi::kSpanTokens;
  job.unit_bits = unit_bits(d.unit);
  job.units = units_of(d);
  job.k_top = d.k_top;
  job.exponent = d.exponent;
  return job;
}

// Reads and checks the descriptor.
inline status_t open_job(const beat_t* io, ap_uint<64> address, ap_uint<64> memory_beats, int group, Job& job) {
#pragma HLS INLINE
  const status_t status = attention::check_array(address, sizeof(abi::GroupChoiceJob), memory_beats);
  if (status != 0) return status;
  beat_t beats[2];
  attention::load_block(io, address / abi::kBeatBytes, beats);
  const Descriptor descriptor = decode(beats[0], beats[1]);
  job = to_job(descriptor);
  return check_numbers(descriptor, group) | check_arrays(descriptor, memory_beats);
}

}  // namespace group_choice
}  // namespace kvdrive
