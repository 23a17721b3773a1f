// SPDX-License-Identifier: Apache-2.0
#include "page_filter/page_filter.hpp"

#include <algorithm>

#include "common/dataflow.hpp"
#include "engine/hls/calls/beats.hpp"
#include "engine/hls/calls/calls.hpp"

namespace kvdrive::hls {
namespace {

struct Sizes {
  int pages;
  int rows;
  int row_bytes;
  int page_bytes;
};

void feed(const std::vector<beat_t>& beats, Stream<beat_t>& to) {
  for (const beat_t& beat : beats) to.write(beat);
}

void filter(Stream<beat_t>& pages, Stream<beat_t>& bitmap, const Sizes& sizes, Stream<filtered_t>& filtered,
            Stream<report_t>& reports) {
  kvdrive::page_filter(pages, bitmap, filtered, reports, sizes.pages, sizes.rows, sizes.row_bytes, sizes.page_bytes);
}

void collect_rows(Stream<filtered_t>& filtered, std::vector<std::uint8_t>& rows) {
  for (bool last = false; !last;) {
    const filtered_t word = filtered.read();
    last = word[kLastBeatBit];
    const unsigned valid = word.range(kValidBytesBit + 6, kValidBytesBit).to_uint();
    const beat_t beat = word.range(abi::kBeatBits - 1, 0);
    rows.resize(rows.size() + valid);
    from_beats(&beat, rows.data() + rows.size() - valid, valid);
  }
}

void collect_reports(Stream<report_t>& reports, FilterResult& result) {
  for (bool last = false; !last;) {
    const report_t report = reports.read();
    last = report[kLastReportBit];
    result.status = lane<32>(report, 0).to_uint();
    result.rows_seen = lane<32>(report, 1).to_uint();
    result.rows_kept = lane<32>(report, 2).to_uint();
    result.page_needed.push_back(report[kNeededBit]);
  }
  if (result.status != 0) result.page_needed.clear();
}

// Returns 0, which the kernel refuses, if the bytes end within a page.
int whole_pages(std::size_t bytes, std::uint32_t page_bytes) {
  return page_bytes == 0 || bytes % page_bytes != 0 ? 0 : static_cast<int>(bytes / page_bytes);
}

}  // namespace

void call_page_filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap, std::uint32_t rows,
                      std::uint32_t row_bytes, std::uint32_t page_bytes, FilterResult& result) {
  const Sizes sizes = {whole_pages(pages.size(), page_bytes), static_cast<int>(rows), static_cast<int>(row_bytes),
                       static_cast<int>(page_bytes)};
  // A refused job consumes no input, so its streams must stay empty.
  const bool accepted = make_filter_job(sizes.pages, sizes.rows, sizes.row_bytes, sizes.page_bytes).status == 0;
  const std::size_t bitmap_bytes = (static_cast<std::size_t>(rows) + 511) / 512 * abi::kBeatBytes;
  std::vector<beat_t> page_beats = to_beats(pages.data(), accepted ? pages.size() : 0);
  std::vector<beat_t> bitmap_beats = to_beats(bitmap.data(), accepted ? std::min(bitmap.size(), bitmap_bytes) : 0);
  if (accepted) bitmap_beats.resize(bitmap_bytes / abi::kBeatBytes, beat_t(0));
  Fifo<beat_t, 16> page_stream("pages");
  Fifo<beat_t, 2> bitmap_stream("bitmap");
  Fifo<filtered_t, 16> filtered("filtered");
  Fifo<report_t, 2> reports("reports");
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(feed, page_beats, page_stream);
  DATAFLOW_STAGE(feed, bitmap_beats, bitmap_stream);
  DATAFLOW_STAGE(filter, page_stream, bitmap_stream, sizes, filtered, reports);
  DATAFLOW_STAGE(collect_rows, filtered, result.rows);
  DATAFLOW_STAGE(collect_reports, reports, result);
  DATAFLOW_END
}

}  // namespace kvdrive::hls
