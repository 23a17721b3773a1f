// SPDX-License-Identifier: Apache-2.0
// Top of page_filter.
#include "page_filter/page_filter.hpp"

#include "common/dataflow.hpp"

namespace kvdrive {
namespace {

void filter(Stream<beat_t>& pages, Stream<beat_t>& bitmap, const FilterJob& job, Stream<filtered_t>& filtered,
            Stream<report_t>& reports) {
#pragma HLS DATAFLOW
  DATAFLOW_FIFO(4, chunks, chunk_t);
  DATAFLOW_FIFO(4, marked, marked_t);
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(split_bitmap, bitmap, job, chunks);
  DATAFLOW_STAGE(mark_rows, pages, chunks, job, marked, reports);
  DATAFLOW_STAGE(compact, marked, job, filtered);
  DATAFLOW_END
}

}  // namespace

int page_filter(Stream<beat_t>& pages, Stream<beat_t>& bitmap, Stream<filtered_t>& filtered, Stream<report_t>& reports,
                int page_count, int rows, int row_bytes, int page_bytes) {
#pragma HLS INTERFACE mode = axis port = pages
#pragma HLS INTERFACE mode = axis port = bitmap
#pragma HLS INTERFACE mode = axis port = filtered
#pragma HLS INTERFACE mode = axis port = reports
#pragma HLS INTERFACE mode = s_axilite port = page_count
#pragma HLS INTERFACE mode = s_axilite port = rows
#pragma HLS INTERFACE mode = s_axilite port = row_bytes
#pragma HLS INTERFACE mode = s_axilite port = page_bytes
#pragma HLS INTERFACE mode = s_axilite port = return
  const FilterJob job = make_filter_job(page_count, rows, row_bytes, page_bytes);
  filter(pages, bitmap, job, filtered, reports);
  return job.status;
}

}  // namespace kvdrive
