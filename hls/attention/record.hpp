// SPDX-License-Identifier: Apache-2.0
// The AttentionResult record: three beats that a job reads, changes in its own fields and writes back.
#pragma once

#include "attention/block.hpp"
#include "attention/job.hpp"
#include "common/exp2.hpp"
#include "common/ratio.hpp"

namespace kvdrive {
namespace attention {

struct Record {
  beat_t head;    // status, selected, max
  beat_t sums;    // sum
  beat_t scales;  // scale, alpha
};

constexpr int kRecordBeats = 3;
static_assert(sizeof(abi::AttentionResult) == kRecordBeats * abi::kBeatBytes, "a record is whole beats");

inline Record no_record() {
#pragma HLS INLINE
  return {0, 0, 0};
}

inline Record load_record(const beat_t* io, const SparfJob& job) {
#pragma HLS INLINE
  beat_t beats[kRecordBeats];
  load_block(io, job.result, beats);
  return {beats[0], beats[1], beats[2]};
}

template <bool kSparf>
void store_record(const Record& record, const Job<kSparf>& job, beat_t* out) {
#pragma HLS INLINE
  const beat_t beats[kRecordBeats] = {record.head, record.sums, record.scales};
  store_block(beats, kRecordBeats, job.result, out);
}

namespace record_lane {
namespace at = abi::attentionresult_bit;
constexpr int kStatus = at::kStatus / 32;
constexpr int kSelected = at::kSelected / 32;
constexpr int kMax = at::kMax / 32;
constexpr int kScale = (at::kScale - 2 * abi::kBeatBits) / 32;
constexpr int kAlpha = (at::kAlpha - 2 * abi::kBeatBits) / 32;
static_assert(at::kMax < abi::kBeatBits && at::kSum == abi::kBeatBits && at::kScale == 2 * abi::kBeatBits,
              "each of these fields is in the beat that is written for it");
}  // namespace record_lane

inline single_t scale_of(const Record& record, int head) {
#pragma HLS INLINE
  return lane<32>(record.scales, record_lane::kScale + head);
}

inline single_t alpha_of(const Record& record, int head) {
#pragma HLS INLINE
  return lane<32>(record.scales, record_lane::kAlpha + head);
}

inline void set_status(Record& record, status_t status) {
#pragma HLS INLINE
  set_lane<32>(record.head, record_lane::kStatus, status);
}

inline void set_selected(Record& record, ap_uint<32> selected) {
#pragma HLS INLINE
  set_lane<32>(record.head, record_lane::kSelected, selected);
}

// The fields of one kind, of all heads; those of heads that the group does not have become zero.
template <int G>
inline void set_totals(Record& record, const max_t max[G], const sum_t sum[G]) {
#pragma HLS INLINE
  for (int h = 0; h < abi::kMaxGroup; ++h) {
#pragma HLS UNROLL
    const int head = h < G ? h : 0;
    const score_t shown = h < G ? score_t(max[head]) : score_t(0);
    set_lane<32>(record.head, record_lane::kMax + h, ap_uint<32>(shown));
    set_lane<64>(record.sums, h, h < G ? ap_uint<64>(sum[head]) : ap_uint<64>(0));
  }
}

template <int G>
inline void set_scales(Record& record, const single_t scale[G]) {
#pragma HLS INLINE
  for (int h = 0; h < abi::kMaxGroup; ++h) {
#pragma HLS UNROLL
    set_lane<32>(record.scales, record_lane::kScale + h, h < G ? scale[h < G ? h : 0] : single_t(0));
  }
}

template <int G>
inline void set_alphas(Record& record, const single_t alpha[G]) {
#pragma HLS INLINE
  for (int h = 0; h < abi::kMaxGroup; ++h) {
#pragma HLS UNROLL
    set_lane<32>(record.scales, record_lane::kAlpha + h, h < G ? alpha[h < G ? h : 0] : single_t(0));
  }
}

}  // namespace attention
}  // namespace kvdrive
