// SPDX-License-Identifier: Apache-2.0
// Results of the weighing pass: divided by the sum of p, rounded once, blended with the mean of V for SPARF_ATTEND,
// and packed into rows of the output.
#pragma once

#include "attention/heads.hpp"
#include "attention/record.hpp"
#include "common/memory.hpp"
#include "common/single.hpp"
#include "gemv/accumulators.hpp"

namespace kvdrive {
namespace attention {

constexpr int kOne = 0x3f800000;  // 1 as binary32

// alpha * near + (1 - alpha) * mean.
inline half_t blend(single_t alpha, single_t near, single_t mean) {
#pragma HLS INLINE
  const single_t beta = single_add(kOne, single_negate(alpha));
  return single_to_half(single_add(single_mul(alpha, near), single_mul(beta, mean)));
}

inline half_t round_to_half(const Ratio<26>& quotient) {
#pragma HLS INLINE
  const ap_uint<1> sticky = ap_uint<13>(quotient.significand) != 0;
  const ap_uint<13> significand = ap_uint<13>(quotient.significand >> 13) | sticky;
  return pack_half(quotient.negative, quotient.exponent + (15 - 24), significand);
}

// One output of one head, binary16 or, for PARTIAL, binary32: both come from the same quotient digits.
template <bool kSparf>
single_t divide_sum(const Job<kSparf>& job, acc_t acc, sum_t total, single_t alpha, single_t mean) {
#pragma HLS INLINE
  const Ratio<26> quotient = ratio<26>(acc, total);
  const single_t single = to_single(quotient);
  if (is_partial(job)) return single;
  if (blends_mean(job)) return blend(alpha, single, mean);
  return round_to_half(quotient);
}

// Also hands flags, maxima and sums to the caller: zeros when the job has no result.
template <int G, bool kSparf>
void divide_sums(Stream<ap_uint<64>>& totals, Stream<accs_t<G>>& accs, Stream<beat_t>& v_sums, Job<kSparf> job,
                 Record record, status_t& status, max_t max[G], sum_t sum[G], Stream<heads_t<G>>& values) {
  const status_t flags = totals.read();
take_totals:
  for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
    const ap_uint<64> word = totals.read();
    max[h] = flags == 0 ? max_of(word) : max_t(0);
    sum[h] = flags == 0 ? sum_of(word) : sum_t(0);
  }
  status = flags;
  const int dimensions = chooses_tokens(job) ? 0 : int(job.head_dim);
  beat_t v_sum = 0;
divide:
  for (int j = 0; j < dimensions; ++j) {
#pragma HLS PIPELINE II = 1
    const accs_t<G> word = accs.read();
    if (blends_mean(job) && j % 8 == 0) v_sum = v_sums.read();
    const ap_int<65> v_total = ap_int<64>(lane<64>(v_sum, 0));
    const single_t mean = ratio_to_single(v_total, job.count);
    v_sum >>= 64;
    heads_t<G> results = 0;
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      const single_t value = divide_sum(job, acc_of<G>(word, h), sum[h], alpha_of(record, h), mean);
      set_lane<32>(results, h, flags == 0 ? value : single_t(0));
    }
    values.write(results);
  }
}

// Words of one value per head -> rows of each head.
template <int G, bool kSparf>
void pack_rows(Stream<heads_t<G>>& values, Job<kSparf> job, Stream<beat_t>& rows) {
  beat_t lines[G][2 * kMaxChunks];
#pragma HLS ARRAY_PARTITION variable = lines complete dim = 1
  beat_t packed[G];
#pragma HLS ARRAY_PARTITION variable = packed complete
  const bool wide = is_partial(job);
  const int row_beats = chooses_tokens(job) ? 0 : wide ? int(2 * job.row_beats) : int(job.row_beats);
  const ap_uint<5> last = (wide ? abi::kLanes / 2 : abi::kLanes) - 1;  // value of a beat
  ap_uint<5> place = 0;
  ap_uint<4> beat = 0;
pack_values:
  for (int i = 0; i < (wide ? row_beats << 4 : row_beats << 5); ++i) {
#pragma HLS PIPELINE II = 1
    const heads_t<G> word = values.read();
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      const single_t value = lane<32>(word, h);
      packed[h] = wide ? packed[h] >> 32 : packed[h] >> 16;
      if (wide) {
        set_lane<32>(packed[h], abi::kLanes / 2 - 1, value);
      } else {
        set_lane<16>(packed[h], abi::kLanes - 1, half_t(value));
      }
      if (place == last) lines[h][beat] = packed[h];
    }
    if (place == last) ++beat;
    place = place == last ? ap_uint<5>(0) : ap_uint<5>(place + 1);
  }
  ap_uint<4> head = 0;
  beat = 0;
send_rows:
  for (int i = 0; i < G * row_beats; ++i) {
#pragma HLS PIPELINE II = 1
    constexpr int kLines = G == 5 ? 8 : G;
    beat_t held[kLines];
#pragma HLS ARRAY_PARTITION variable = held complete
    for (int h = 0; h < kLines; ++h) {
#pragma HLS UNROLL
      held[h] = lines[h < G ? h : 0][beat];
    }
    rows.write(pick_lane<kLines>(held, head));
    const bool ends = beat == row_beats - 1;
    if (ends) ++head;
    beat = ends ? ap_uint<4>(0) : ap_uint<4>(beat + 1);
  }
}

template <int G, bool kSparf>
void store_rows(Stream<beat_t>& rows, Job<kSparf> job, beat_t* out) {
  const int row_beats = chooses_tokens(job) ? 0 : is_partial(job) ? int(2 * job.row_beats) : int(job.row_beats);
  write_beats(rows, G * row_beats, out + job.out);
}

}  // namespace attention
}  // namespace kvdrive
