// SPDX-License-Identifier: Apache-2.0
// Closes the gaps between kept granules, one beat a cycle.
//
// Up to two granules wait for the next ones, so that the last beat can be marked as such when the job ends.
#pragma once

#include "page_filter/rows.hpp"

namespace kvdrive {

using granule_t = ap_uint<kGranuleBits>;

inline filtered_t make_filtered(granule_t low, granule_t high, int granules, bool last) {
#pragma HLS INLINE
  filtered_t word = 0;
  word.range(kGranuleBits - 1, 0) = low;
  word.range(2 * kGranuleBits - 1, kGranuleBits) = high;
  word.range(kValidBytesBit + 6, kValidBytesBit) = kGranuleBytes * granules;
  word[kLastBeatBit] = last;
  return word;
}

// Where a granule comes from, worked out once for all of its bits. The upper bit: from the word that came.
enum Source : int { kNothing, kHeld, kLow, kHigh };
using source_t = ap_uint<2>;

inline granule_t pick(source_t source, granule_t held, granule_t low, granule_t high) {
#pragma HLS INLINE
  const granule_t came = source[0] ? high : low;
  const granule_t stayed = source[0] ? held : granule_t(0);
  return source[1] ? came : stayed;
}

inline void compact(Stream<marked_t>& marked, const FilterJob& job, Stream<filtered_t>& filtered) {
  granule_t held[2] = {0, 0};
#pragma HLS ARRAY_PARTITION variable = held complete
  ap_uint<2> count = 0;  // of held granules
  marked_t word = 0;     // read an iteration ahead, so that only its marks are cleared where there is none
  ap_uint<2> keep = 0;
compact:
  for (beat_count_t i = 0; i <= job.beats + 1; ++i) {  // one more to read ahead, one for the last beat
#pragma HLS PIPELINE II = 1
    const bool flush = i == job.beats + 1;
    marked_t next = word;
    ap_uint<2> next_keep = 0;
    if (i < job.beats) {
      next = marked.read();
      next_keep = next.range(kKeepBit + 1, kKeepBit);
    }
    const bool keep_low = keep[0];
    const bool keep_high = keep[1];
    const granule_t low = word.range(kGranuleBits - 1, 0);
    const granule_t high = word.range(2 * kGranuleBits - 1, kGranuleBits);
    const source_t first = keep_low ? kLow : keep_high ? kHigh : kNothing;
    const source_t second = keep_low && keep_high ? kHigh : kNothing;
    const ap_uint<3> total = count + keep_low + keep_high;
    const bool full = total > 2;
    const source_t low_from = count > 0 ? source_t(kHeld) : first;
    const source_t high_from = count == 2 ? source_t(kHeld) : count == 1 ? first : second;
    const granule_t line_low = pick(low_from, held[0], low, high);
    const granule_t line_high = pick(high_from, held[1], low, high);
    if (full || flush) filtered.write(make_filtered(line_low, line_high, full ? 2 : total.to_int(), flush));
    // A full line leaves the kept granules that it had no place for.
    const source_t stays_low = !full ? low_from : count == 2 ? first : second;
    const source_t stays_high = full ? second : high_from;
    held[0] = pick(stays_low, held[0], low, high);
    held[1] = pick(stays_high, held[1], low, high);
    count = full ? ap_uint<2>(total - 2) : ap_uint<2>(total);
    word = next;
    keep = next_keep;
  }
}

}  // namespace kvdrive
