// SPDX-License-Identifier: Apache-2.0
// Marks the granules of wanted rows, one beat a cycle, and reports on each page.
#pragma once

#include "common/stream.hpp"
#include "page_filter/job.hpp"

namespace kvdrive {

constexpr int kChunkBits = 16;

using chunk_t = ap_uint<kChunkBits>;  // of the bitmap

// Data, then one bit per granule: keep it.
using marked_t = ap_uint<abi::kBeatBits + 2>;
constexpr int kKeepBit = abi::kBeatBits;

// Bitmap beats -> chunks. Rate: 16 rows a cycle, where the smallest rows pass at 2 a cycle.
inline void split_bitmap(Stream<beat_t>& bitmap, const FilterJob& job, Stream<chunk_t>& chunks) {
  constexpr int kChunks = abi::kBeatBits / kChunkBits;
  beat_t held = 0;
split:
  for (long long first = 0; first < job.rows; first += kChunkBits) {
#pragma HLS PIPELINE II = 1
    const int place = first / kChunkBits % kChunks;
    chunk_t chunk = 0;  // the first one comes from the new beat: the others wait for nothing but their number
    for (int i = 1; i < kChunks; ++i) {
#pragma HLS UNROLL
      if (place == i) chunk |= lane<kChunkBits>(held, i);
    }
    if (place == 0) {
      held = bitmap.read();
      chunk = lane<kChunkBits>(held, 0);
    }
    chunks.write(chunk);
  }
}

// Position in the rows of all pages.
struct RowWalk {
  int row = 0;                     // of the next granule; in padding: of the next page's first granule
  row_granules_t row_granule = 0;  // of the next granule in its row
};

struct Granule {
  bool in_row;    // not in padding
  bool ends_row;  // last one of its row
};

// Steps over one granule, with `granules_left` to the end of its page, itself included.
inline Granule step(RowWalk& walk, page_granules_t granules_left, row_granules_t row_granules) {
#pragma HLS INLINE
  Granule granule;
  granule.in_row = walk.row_granule != 0 || granules_left >= row_granules;
  granule.ends_row = granule.in_row && walk.row_granule == row_granules - 1;
  if (granule.ends_row) {
    walk.row_granule = 0;
    ++walk.row;
  } else if (granule.in_row) {
    ++walk.row_granule;
  }
  return granule;
}

inline report_t make_report(int status, int rows_seen, int rows_kept, bool needed, bool last) {
#pragma HLS INLINE
  report_t report = 0;
  set_lane<32>(report, 0, ap_uint<32>(status));
  set_lane<32>(report, 1, ap_uint<32>(rows_seen));
  set_lane<32>(report, 2, ap_uint<32>(rows_kept));
  report[kNeededBit] = needed;
  report[kLastReportBit] = last;
  return report;
}

// `wanted` holds the bits of 32 rows: of the chunk of the current row, and of the next chunk.
inline void mark_rows(Stream<beat_t>& pages, Stream<chunk_t>& chunks, const FilterJob& job, Stream<marked_t>& marked,
                      Stream<report_t>& reports) {
  ap_uint<2 * kChunkBits> wanted = 0;
  if (job.beats == 0) {
    reports.write(make_report(job.status, 0, 0, false, true));
  } else {
    wanted = ap_uint<2 * kChunkBits>(chunks.read()) << kChunkBits;  // the first iteration shifts it down
  }
  RowWalk walk;
  long long rows_fetched = kChunkBits;
  bool next_chunk = true;
  page_granules_t granules_left = job.page_granules;
  int rows_kept = 0;
  bool needed = false;
mark:
  for (beat_count_t i = 0; i < job.beats; ++i) {
#pragma HLS PIPELINE II = 1
    const beat_t beat = pages.read();
    if (next_chunk) {
      wanted >>= kChunkBits;
      if (rows_fetched < job.rows) wanted |= ap_uint<2 * kChunkBits>(chunks.read()) << kChunkBits;
      rows_fetched += kChunkBits;
    }
    const int first_row = walk.row;
    marked_t word = beat;
    for (int g = 0; g < 2; ++g) {
#pragma HLS UNROLL
      const int row = walk.row;
      const Granule granule = step(walk, granules_left - g, job.row_granules);
      const bool want = row < job.rows && wanted[first_row % kChunkBits + (row - first_row)];
      word[kKeepBit + g] = granule.in_row && want;
      needed = needed || (granule.in_row && want);
      rows_kept += granule.ends_row && want;
    }
    marked.write(word);
    next_chunk = walk.row / kChunkBits != first_row / kChunkBits;
    const bool page_ends = granules_left == 2;
    if (page_ends) {
      const int rows_seen = walk.row < job.rows ? walk.row : job.rows;
      reports.write(make_report(0, rows_seen, rows_kept, needed, i == job.beats - 1));
      needed = false;
    }
    granules_left = page_ends ? job.page_granules : page_granules_t(granules_left - 2);
  }
}

}  // namespace kvdrive
