// SPDX-License-Identifier: Apache-2.0
// What the codes of a span are multiplied with: w = q8 * step of each channel and head, and the constant part of the
// scores, the sum of q8 * lo. Eight channels a cycle, so a span of d channels takes d / 8 cycles, less than its beats.
#pragma once

#include "common/half.hpp"
#include "group_choice/fetch.hpp"

namespace kvdrive {
namespace group_choice {

constexpr int kLaneWeights = 8;                             // channels of a word
constexpr int kChunkWords = abi::kLanes / kLaneWeights;     // words of 32 channels
constexpr int kMaxWords = abi::kMaxHeadDim / kLaneWeights;  // words of a span
constexpr int kRangeBeats = 2 * kMaxChunks;                 // ranges of two spans
constexpr int kQueryLimit = 127;

// w of eight channels, 16 bits each, head after head.
template <int G>
using weights_t = ap_uint<16 * kLaneWeights * G>;

// f of every head (6 bits each), then a bit that says that q is finite.
using shifts_t = ap_uint<6 * abi::kMaxGroup + 1>;

// The smallest f with `magnitude` (a binary16 pattern without its sign) at most 127 * 2^f, in LSB 2^-24.
inline ap_uint<6> query_shift(ap_uint<15> magnitude) {
#pragma HLS INLINE
  const HalfParts parts = unpack(half_t(magnitude));
  const ap_uint<11> mantissa = parts.mantissa;
  ap_uint<6> shift = parts.shift;
  ap_uint<3> more = 5;
  for (int f = 4; f >= 0; --f) {
#pragma HLS UNROLL
    if (mantissa <= (kQueryLimit << f)) more = f;
  }
  return shift + more;
}

// RNE(fixed(q) / 2^f), in -127..127.
inline ap_int<8> quantise(half_t q, ap_uint<6> f) {
#pragma HLS INLINE
  const HalfParts parts = unpack(half_t(q & 0x7fff));
  const ap_uint<6> distance = f - parts.shift;
  const ap_uint<4> down = distance > 12 ? ap_uint<4>(12) : ap_uint<4>(distance);
  const ap_uint<12> doubled = ap_uint<12>(ap_uint<11>(parts.mantissa)) << 1;
  const ap_uint<12> kept = doubled >> down;
  const bool lost = ap_uint<12>(kept << down) != doubled;
  const bool up = kept[0] && (lost || kept[1]);
  const ap_uint<7> magnitude = (kept >> 1) + (up ? 1 : 0);
  return q[15] ? ap_int<8>(-ap_int<8>(magnitude)) : ap_int<8>(magnitude);
}

// Reads q and keeps it in eight bits, eight channels to a word.
template <int G>
shifts_t quantise_queries(Stream<beat_t>& in, int beats, ap_uint<64> queries[G][kMaxWords]) {
#pragma HLS INLINE
  beat_t halves[kMaxChunks];
  shifts_t shifts = 0;
  bool finite = true;
quantise_heads:
  for (int head = 0; head < G; ++head) {
    ap_uint<15> largest = 0;
    beat_t beat = 0;
  find_largest:
    for (int word = 0; word < beats * kChunkWords; ++word) {
#pragma HLS PIPELINE II = 1
      if (word % kChunkWords == 0) {
        beat = in.read();
        finite &= all_finite(beat);
        halves[word / kChunkWords] = beat;
      }
      ap_uint<15> magnitudes[kLaneWeights];
#pragma HLS ARRAY_PARTITION variable = magnitudes complete
      for (int l = 0; l < kLaneWeights; ++l) {
#pragma HLS UNROLL
        magnitudes[l] = half_lane(beat, l);
      }
      for (int half = kLaneWeights / 2; half >= 1; half /= 2) {
#pragma HLS UNROLL
        for (int l = 0; l < kLaneWeights / 2; ++l) {
#pragma HLS UNROLL
          if (l < half && magnitudes[l + half] > magnitudes[l]) magnitudes[l] = magnitudes[l + half];
        }
      }
      if (magnitudes[0] > largest) largest = magnitudes[0];
      beat >>= 16 * kLaneWeights;
    }
    const ap_uint<6> f = query_shift(largest);
    shifts = (shifts >> 6) | (shifts_t(f) << (6 * abi::kMaxGroup - 6));
  quantise_words:
    for (int word = 0; word < beats * kChunkWords; ++word) {
#pragma HLS PIPELINE II = 1
      if (word % kChunkWords == 0) beat = halves[word / kChunkWords];
      ap_uint<64> values = 0;
      for (int l = 0; l < kLaneWeights; ++l) {
#pragma HLS UNROLL
        const ap_uint<8> value = quantise(half_lane(beat, l), f);
        values |= ap_uint<64>(value) << (8 * l);
      }
      for (int to = 0; to < G; ++to) {
#pragma HLS UNROLL
        if (to == head) queries[to][word] = values;
      }
      beat >>= 16 * kLaneWeights;
    }
  }
  shifts >>= 6 * (abi::kMaxGroup - G);
  shifts[6 * abi::kMaxGroup] = finite;
  return shifts;
}

inline ap_uint<8> byte_at(ap_uint<64> word, int index) {
#pragma HLS INLINE
  return ap_uint<8>(word >> (8 * index));
}

// Where a beat of ranges lies: spans take turns.
inline ap_uint<4> range_place(ap_uint<1> buffer, ap_uint<3> beat) {
#pragma HLS INLINE
  return (ap_uint<4>(buffer) << 3) | beat;
}

// 64 of the ranges' bytes: eight channels of a half beat.
inline ap_uint<64> range_word(const beat_t& beat, ap_uint<1> upper, ap_uint<2> word) {
#pragma HLS INLINE
  ap_uint<64> found = 0;
  for (int i = 0; i < 8; ++i) {
#pragma HLS UNROLL
    if (ap_uint<3>((ap_uint<3>(upper) << 2) | word) == i) found = lane<64>(beat, i);
  }
  return found;
}

// The ranges of one span arrive while those of the span before it are used.
template <int G>
void weigh_channels(Stream<beat_t>& query_beats, Stream<beat_t>& ranges, Job job, Stream<shifts_t>& shifts,
                    Stream<weights_t<G>>& weights, Stream<attention::heads_t<G>>& bases) {
  ap_uint<64> queries[G][kMaxWords];
#pragma HLS ARRAY_PARTITION variable = queries complete dim = 1
  beat_t lows[kRangeBeats];
  beat_t steps[kRangeBeats];
  const ap_uint<4> chunks = job.rows.row_beats;
  shifts.write(quantise_queries<G>(query_beats, chunks, queries));
  ap_int<24> base[G];
#pragma HLS ARRAY_PARTITION variable = base complete
  ap_uint<6> word = 0;  // of the span
  ap_uint<13> span = 0;
weigh_words:
  for (int i = 0; i < (job.spans + 1) * (chunks * kChunkWords); ++i) {
#pragma HLS PIPELINE II = 1
#pragma HLS DEPENDENCE variable = lows type = inter direction = RAW distance = 4 dependent = true
#pragma HLS DEPENDENCE variable = steps type = inter direction = RAW distance = 4 dependent = true
    const bool first = word == 0;
    const bool last = word == chunks * kChunkWords - 1;
    const ap_uint<3> chunk = word / kChunkWords;
    const ap_uint<4> step_half = chunks + chunk;  // half beats: `lo` of all channels, then `step`
    const ap_uint<1> before = ap_uint<1>(span + 1);
    const beat_t low_beat = lows[range_place(before, chunk >> 1)];
    const beat_t step_beat = steps[range_place(before, step_half >> 1)];
    if (word < chunks && span != job.spans) {
      const beat_t beat = ranges.read();
      lows[range_place(span, word)] = beat;
      steps[range_place(span, word)] = beat;
    }
    const ap_uint<64> lo = range_word(low_beat, ap_uint<1>(chunk), ap_uint<2>(word));
    const ap_uint<64> step = range_word(step_beat, ap_uint<1>(step_half), ap_uint<2>(word));
    weights_t<G> products = 0;
    attention::heads_t<G> sums = 0;
    for (int h = 0; h < G; ++h) {
#pragma HLS UNROLL
      const ap_uint<64> q = queries[h][word];
      ap_int<24> sum = first ? ap_int<24>(0) : base[h];
      for (int l = 0; l < kLaneWeights; ++l) {
#pragma HLS UNROLL
        const ap_int<8> value = byte_at(q, l);
        const ap_int<8> low = byte_at(lo, l);
        const ap_int<16> product = value * byte_at(step, l);
        sum += value * low;
        set_lane<16>(products, kLaneWeights * h + l, ap_uint<16>(product));
      }
      base[h] = sum;
      set_lane<32>(sums, h, ap_uint<32>(ap_int<32>(sum)));
    }
    if (span != 0) weights.write(products);
    if (span != 0 && last) bases.write(sums);
    word = last ? ap_uint<6>(0) : ap_uint<6>(word + 1);
    if (last) ++span;
  }
}

}  // namespace group_choice
}  // namespace kvdrive
