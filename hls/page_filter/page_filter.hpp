// SPDX-License-Identifier: Apache-2.0
// page_filter: the wanted rows of flash pages, in order, without gaps. One 512-bit beat a cycle.
//
// In: whole pages of 4, 8 or 16 KiB, each with floor(page_bytes / row_bytes) rows from its first byte and padding after
// them; a bitmap of ceil(rows / 512) beats, rows numbered across pages, those from `rows` on unwanted. Row sizes are
// multiples of 32 bytes, 32 to 512. Out: packed rows and one report per page (job.hpp has both layouts). Returns a
// status word; with BAD_ROW_BYTES, BAD_PAGE_BYTES or BAD_LENGTH (no rows, or more than the pages hold) nothing is
// consumed, and one empty last beat and one last report come out. Cycles: about the number of page beats.
#pragma once

#include "page_filter/compact.hpp"
#include "page_filter/rows.hpp"

namespace kvdrive {

// C linkage: v++ finds a kernel by its linker name.
extern "C" int page_filter(Stream<beat_t>& pages, Stream<beat_t>& bitmap, Stream<filtered_t>& filtered,
                           Stream<report_t>& reports, int page_count, int rows, int row_bytes, int page_bytes);

}  // namespace kvdrive
