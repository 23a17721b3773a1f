// SPDX-License-Identifier: Apache-2.0
// Geometry of a filter job, and the words that leave the kernel.
#pragma once

#include "common/types.hpp"

namespace kvdrive {

// Row sizes are multiples of a granule, so a row begins at a granule, and a beat is two granules.
constexpr int kGranuleBytes = abi::kRowBytesStep;
constexpr int kGranuleBits = 8 * kGranuleBytes;
constexpr int kMaxRowGranules = abi::kMaxRowBytes / kGranuleBytes;
constexpr int kMaxPageGranules = 16384 / kGranuleBytes;
static_assert(abi::kBeatBytes == 2 * kGranuleBytes && abi::kMinRowBytes == kGranuleBytes, "a beat is two granules");
static_assert(abi::kFilterPageBytes[2] == kMaxPageGranules * kGranuleBytes, "the largest page");
static_assert(abi::kFilterPageBytes[1] == 2 * abi::kFilterPageBytes[0], "page sizes are powers of two");
static_assert(abi::kFilterPageBytes[2] == 4 * abi::kFilterPageBytes[0], "page sizes are powers of two");

using row_granules_t = ap_uint<5>;    // 1 to 16
using page_granules_t = ap_uint<10>;  // 0 to 512
using beat_count_t = ap_uint<40>;     // of all pages of a job

// Bits 0 to 511: data; then the number of valid bytes (0, 32 or 64); then a mark on the last beat of the job. Every job
// ends with exactly one marked beat; it is empty where no row was kept.
using filtered_t = ap_uint<528>;
constexpr int kValidBytesBit = 512;  // seven bits
constexpr int kLastBeatBit = 520;

// One per page, its counts up to and including that page; the last one is marked. Lane 0: status, lane 1: rows seen,
// lane 2: rows kept; then two flags. A refused job gives one report, with its status and the mark.
using report_t = ap_uint<128>;
constexpr int kNeededBit = 96;  // the page holds a wanted row
constexpr int kLastReportBit = 97;

struct FilterJob {
  int status = 0;
  beat_count_t beats = 0;  // 0 in a refused job
  int rows = 0;
  page_granules_t page_granules = 0;
  row_granules_t row_granules = 1;
};

inline int rows_per_page(page_granules_t page_granules, row_granules_t row_granules) {
#pragma HLS INLINE
  constexpr int kRows[kMaxRowGranules] = {512, 256, 170, 128, 102, 85, 73, 64, 56, 51, 46, 42, 39, 36, 34, 32};
  const int rows = kRows[row_granules - 1];  // of the largest page; halving the page halves this, rounded down
  return page_granules == kMaxPageGranules ? rows : page_granules == kMaxPageGranules / 2 ? rows / 2 : rows / 4;
}

inline FilterJob make_filter_job(int pages, int rows, int row_bytes, int page_bytes) {
#pragma HLS INLINE
  FilterJob job;
  const bool row_fits = row_bytes >= abi::kMinRowBytes && row_bytes <= abi::kMaxRowBytes;
  if (!row_fits || row_bytes % abi::kRowBytesStep != 0) job.status |= abi::kBadRowBytes;
  bool known_page = false;
  ap_uint<2> page_size = 0;  // 0 for 4 KiB, and one more each time it doubles
  for (int i = 0; i < 3; ++i) {
#pragma HLS UNROLL
    if (page_bytes == int(abi::kFilterPageBytes[i])) {
      known_page = true;
      page_size = i;
    }
  }
  if (!known_page) job.status |= abi::kBadPageBytes;
  if (job.status != 0) return job;
  job.page_granules = page_bytes / kGranuleBytes;
  job.row_granules = row_bytes / kGranuleBytes;
  const long long capacity = static_cast<long long>(pages) * rows_per_page(job.page_granules, job.row_granules);
  if (rows < 1 || rows > capacity) {
    job.status |= abi::kBadLength;
    return job;
  }
  job.beats = beat_count_t(pages) * (abi::kFilterPageBytes[0] / abi::kBeatBytes) << page_size;
  job.rows = rows;
  return job;
}

}  // namespace kvdrive
