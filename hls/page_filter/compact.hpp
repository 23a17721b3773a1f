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

inline void compact(Stream<marked_t>& marked, const FilterJob& job, Stream<filtered_t>& filtered) {
  const long long beats = beats_of(job);
  granule_t held[2] = {0, 0};
#pragma HLS ARRAY_PARTITION variable = held complete
  int count = 0;
compact:
  for (long long i = 0; i <= beats; ++i) {  // one more, for the last beat
#pragma HLS PIPELINE II = 1
    const bool flush = i == beats;
    marked_t word = 0;
    if (!flush) word = marked.read();
    const bool keep_low = word[kKeepBit];
    const bool keep_high = word[kKeepBit + 1];
    const granule_t low = word.range(kGranuleBits - 1, 0);
    const granule_t high = word.range(2 * kGranuleBits - 1, kGranuleBits);
    const granule_t first = keep_low ? low : keep_high ? high : granule_t(0);
    const granule_t second = keep_low && keep_high ? high : granule_t(0);
    const int total = count + keep_low + keep_high;
    const granule_t line_low = count > 0 ? held[0] : first;
    const granule_t line_high = count == 2 ? held[1] : count == 1 ? first : second;
    const bool full = total > 2;
    if (full || flush) filtered.write(make_filtered(line_low, line_high, full ? 2 : total, flush));
    held[0] = !full ? line_low : count == 2 ? first : second;
    held[1] = full ? second : line_high;
    count = full ? total - 2 : total;
  }
}

}  // namespace kvdrive
