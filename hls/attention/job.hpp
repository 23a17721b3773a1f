// SPDX-License-Identifier: Apache-2.0
// The descriptor of a job: decoding, and every check of docs/jobs.md that needs no array. No descriptor, whatever its
// bytes, gets beyond `check` with an array outside the memory: ends are computed wide enough never to wrap.
#pragma once

#include "common/types.hpp"

namespace kvdrive {
namespace attention {

using status_t = ap_uint<32>;
using descriptor_t = ap_uint<8 * sizeof(abi::AttentionJob)>;

// The fields as they lie in memory.
struct Descriptor {
  ap_uint<16> version;
  ap_uint<8> mode;
  ap_uint<8> group;
  ap_uint<16> head_dim;
  ap_uint<16> r;
  ap_uint<32> tokens;
  ap_uint<32> inline_tokens;
  ap_uint<32> k_top;
  ap_uint<32> local;
  ap_uint<32> scale_log2e;
  ap_uint<32> count;
  ap_uint<64> q;
  ap_uint<64> k;
  ap_uint<64> v;
  ap_uint<64> inline_scores;
  ap_uint<64> inline_v;
  ap_uint<64> valid;
  ap_uint<64> rows;
  ap_uint<64> v_sum;
  ap_uint<64> out;
  ap_uint<64> result;
};

// A job that passed its checks, for an engine with all modes or, without kSparf, with EXACT and PARTIAL only: what the
// type excludes is not built. Places are beats of the memory. `heads` equals the constant G of the kernel, but a loop
// over it stays a loop even for one head: it is skipped by the modes that do not need it, in place of being computed
// for nothing.
template <bool kSparf>
struct Job {
  ap_uint<3> mode;
  ap_uint<4> heads;      // of the query, see above
  ap_uint<4> row_beats;  // head_dim / 32
  ap_uint<9> head_dim;   // 32..256
  ap_uint<9> r;          // 1..head_dim
  ap_uint<18> tokens;    // 0..kMaxTokens
  ap_uint<18> inline_tokens;
  ap_uint<15> k_top;
  ap_uint<15> local;
  ap_uint<18> count;
  ap_uint<22> k_beats;  // of K in memory, and of V
  ap_uint<22> inline_v_beats;
  bool masked;  // `valid` is present
  single_t scale_log2e;
  ap_uint<58> q;
  ap_uint<58> k;
  ap_uint<58> v;
  ap_uint<58> inline_scores;
  ap_uint<58> inline_v;
  ap_uint<58> valid;
  ap_uint<58> rows;
  ap_uint<58> v_sum;
  ap_uint<58> out;
  ap_uint<58> result;
};

using SparfJob = Job<true>;
using ExactJob = Job<false>;

inline bool chooses_rows(const SparfJob& job) { return job.mode == abi::kSparfRows; }
inline bool chooses_tokens(const SparfJob& job) { return job.mode == abi::kSparfTokens; }
inline bool blends_mean(const SparfJob& job) { return job.mode == abi::kSparfAttend; }
inline bool chooses_tokens(const ExactJob&) { return false; }
inline bool blends_mean(const ExactJob&) { return false; }

template <bool kSparf>
bool is_partial(const Job<kSparf>& job) {
#pragma HLS INLINE
  return job.mode == abi::kPartial;
}

// Beats of a token in the scoring pass: of all dimensions, or of the chosen ones padded with zeros.
template <bool kSparf>
ap_uint<4> score_beats(const Job<kSparf>& job) {
#pragma HLS INLINE
  return chooses_tokens(job) ? ap_uint<4>((job.r + abi::kLanes - 1) / abi::kLanes) : job.row_beats;
}

template <int kBits>
inline ap_uint<kBits> field(const descriptor_t& words, int bit) {
#pragma HLS INLINE
  return lane<kBits>(words, bit / kBits);
}

inline Descriptor decode(const beat_t& first, const beat_t& second) {
#pragma HLS INLINE
  namespace at = abi::attentionjob_bit;
  const descriptor_t words = (descriptor_t(second) << abi::kBeatBits) | first;
  Descriptor d;
  d.version = field<16>(words, at::kVersion);
  d.mode = field<8>(words, at::kMode);
  d.group = field<8>(words, at::kGroup);
  d.head_dim = field<16>(words, at::kHeadDim);
  d.r = field<16>(words, at::kR);
  d.tokens = field<32>(words, at::kTokens);
  d.inline_tokens = field<32>(words, at::kInlineTokens);
  d.k_top = field<32>(words, at::kKTop);
  d.local = field<32>(words, at::kLocal);
  d.scale_log2e = field<32>(words, at::kScaleLog2e);
  d.count = field<32>(words, at::kCount);
  d.q = field<64>(words, at::kQ);
  d.k = field<64>(words, at::kK);
  d.v = field<64>(words, at::kV);
  d.inline_scores = field<64>(words, at::kInlineScores);
  d.inline_v = field<64>(words, at::kInlineV);
  d.valid = field<64>(words, at::kValid);
  d.rows = field<64>(words, at::kRows);
  d.v_sum = field<64>(words, at::kVSum);
  d.out = field<64>(words, at::kOut);
  d.result = field<64>(words, at::kResult);
  return d;
}

// An array of `bytes` at `address`. Arrays without bytes are not in use; none is longer than 2^57 bytes.
inline status_t check_array(ap_uint<64> address, ap_uint<57> bytes, ap_uint<64> memory_beats) {
#pragma HLS INLINE
  const ap_uint<71> end = ap_uint<71>(address) + bytes;
  const ap_uint<71> limit = ap_uint<71>(memory_beats) * abi::kBeatBytes;
  status_t status = 0;
  if (bytes != 0 && (address & (abi::kBeatBytes - 1)) != 0) status |= abi::kUnaligned;
  if (bytes != 0 && end > limit) status |= abi::kOutOfRange;
  return status;
}

template <bool kSparf>
status_t check_shape(const Descriptor& d, int group) {
#pragma HLS INLINE
  const bool rows = kSparf && d.mode == abi::kSparfRows;
  const bool tokens = kSparf && d.mode == abi::kSparfTokens;
  const ap_uint<33> length = d.tokens + d.inline_tokens;
  status_t status = 0;
  if (d.group != group) status |= abi::kBadGroup;
  if (d.head_dim == 0 || d.head_dim > abi::kMaxHeadDim || d.head_dim % abi::kHeadDimStep != 0) {
    status |= abi::kBadHeadDim;
  }
  if ((rows || tokens) && (d.r == 0 || d.r > d.head_dim)) status |= abi::kBadR;
  if (!tokens && ap_uint<8>(d.scale_log2e >> 23) == 0xff) status |= abi::kBadScale;
  if (!rows && (length == 0 || length > abi::kMaxTokens)) status |= abi::kBadLength;
  if (tokens && d.tokens == 0) status |= abi::kBadLength;
  if (tokens && (d.k_top == 0 || d.k_top > d.tokens || d.k_top > abi::kMaxTopK || d.local > d.k_top)) {
    status |= abi::kBadK;
  }
  if (kSparf && d.mode == abi::kSparfAttend && (d.count == 0 || d.count > abi::kMaxTokens)) status |= abi::kBadLength;
  return status;
}

// Bytes of the arrays whose sizes are products.
struct Sizes {
  ap_uint<57> query;
  ap_uint<57> k;  // and of V, where the mode reads it
  ap_uint<57> inline_v;
  ap_uint<57> inline_scores;
  ap_uint<57> bitmap;  // of the dense tokens
};

template <bool kSparf>
Sizes sizes_of(const Descriptor& d) {
#pragma HLS INLINE
  const bool columns = kSparf && d.mode == abi::kSparfTokens;
  const ap_uint<32> rows = columns ? ap_uint<32>((ap_uint<33>(d.tokens) + 31) / 32) : d.tokens;
  const ap_uint<16> row_values = columns ? d.r : d.head_dim;
  const ap_uint<48> values = rows * row_values;
  Sizes sizes;
  sizes.query = ap_uint<57>(d.group * d.head_dim) * 2;
  sizes.k = columns ? ap_uint<57>(ap_uint<57>(values) * abi::kBeatBytes) : ap_uint<57>(ap_uint<57>(values) * 2);
  sizes.inline_v = ap_uint<57>(d.inline_tokens * d.head_dim) * 2;
  sizes.inline_scores = ap_uint<57>(((ap_uint<33>(d.inline_tokens) + 15) / 16) * d.group) * abi::kBeatBytes;
  sizes.bitmap = ap_uint<57>((ap_uint<33>(d.tokens) + 511) / 512) * abi::kBeatBytes;
  return sizes;
}

template <bool kSparf>
status_t check_arrays(const Descriptor& d, const Sizes& sizes, ap_uint<64> memory_beats) {
#pragma HLS INLINE
  const bool rows = kSparf && d.mode == abi::kSparfRows;
  const bool tokens = kSparf && d.mode == abi::kSparfTokens;
  const bool attends = !rows && !tokens;
  const ap_uint<57> out = tokens ? sizes.bitmap : d.mode == abi::kPartial ? ap_uint<57>(sizes.query * 2) : sizes.query;
  status_t status = check_array(d.q, sizes.query, memory_beats);
  status |= check_array(d.result, sizeof(abi::AttentionResult), memory_beats);
  if (!attends) status |= check_array(d.rows, abi::kBeatBytes, memory_beats);
  if (!rows) {
    status |= check_array(d.k, sizes.k, memory_beats);
    status |= check_array(d.out, out, memory_beats);
    status |= check_array(d.inline_scores, sizes.inline_scores, memory_beats);
    if (d.valid != 0) status |= check_array(d.valid, sizes.bitmap, memory_beats);
  }
  if (attends) {
    status |= check_array(d.v, sizes.k, memory_beats);
    status |= check_array(d.inline_v, sizes.inline_v, memory_beats);
  }
  if (kSparf && d.mode == abi::kSparfAttend) status |= check_array(d.v_sum, ap_uint<57>(d.head_dim) * 8, memory_beats);
  return status;
}

template <bool kSparf>
status_t check(const Descriptor& d, const Sizes& sizes, int group, ap_uint<64> memory_beats) {
#pragma HLS INLINE
  const bool known = d.mode <= (kSparf ? abi::kSparfAttend : abi::kPartial);
  status_t status = 0;
  if (d.version != abi::kAbiVersion) status |= abi::kBadVersion;
  if (!known) return status | status_t(abi::kBadMode);
  return status | check_shape<kSparf>(d, group) | check_arrays<kSparf>(d, sizes, memory_beats);
}

// Only for descriptors that passed `check`.
template <bool kSparf>
Job<kSparf> to_job(const Descriptor& d, const Sizes& sizes) {
#pragma HLS INLINE
  Job<kSparf> job;
  job.mode = d.mode;
  job.heads = d.group;
  job.row_beats = d.head_dim / abi::kLanes;
  job.head_dim = d.head_dim;
  job.r = d.r;
  job.tokens = d.tokens;
  job.inline_tokens = d.inline_tokens;
  job.k_top = d.k_top;
  job.local = d.local;
  job.count = d.count;
  job.k_beats = sizes.k / abi::kBeatBytes;
  job.inline_v_beats = sizes.inline_v / abi::kBeatBytes;
  job.masked = d.valid != 0;
  job.scale_log2e = d.scale_log2e;
  job.q = d.q / abi::kBeatBytes;
  job.k = d.k / abi::kBeatBytes;
  job.v = d.v / abi::kBeatBytes;
  job.inline_scores = d.inline_scores / abi::kBeatBytes;
  job.inline_v = d.inline_v / abi::kBeatBytes;
  job.valid = d.valid / abi::kBeatBytes;
  job.rows = d.rows / abi::kBeatBytes;
  job.v_sum = d.v_sum / abi::kBeatBytes;
  job.out = d.out / abi::kBeatBytes;
  job.result = d.result / abi::kBeatBytes;
  return job;
}

}  // namespace attention
}  // namespace kvdrive
