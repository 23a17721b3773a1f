// SPDX-License-Identifier: Apache-2.0
// csim of page_filter: the kernel between a feeder and two collectors, as it sits in hardware.
#include <algorithm>

#include "common/csim.hpp"
#include "common/dataflow.hpp"
#include "page_filter/page_filter.hpp"

namespace {

using kvdrive::beat_t;
using kvdrive::Stream;
using Bytes = std::vector<std::uint8_t>;

struct Output {
  int status = 0;
  Bytes rows;
  std::uint64_t beats = 0;
  std::uint64_t partial_beats = 0;  // not full, though not the last
  std::uint64_t padding = 0;        // bytes that are not 0 behind the last row
  std::vector<std::uint8_t> page_needed;
  std::uint32_t reported_status = 0;
  std::uint32_t rows_seen = 0;
  std::uint32_t rows_kept = 0;
};

void feed(const std::vector<beat_t>& beats, bool accepted, Stream<beat_t>& to) {
  if (!accepted) return;
  for (const beat_t& beat : beats) to.write(beat);
}

void collect_rows(Stream<kvdrive::filtered_t>& filtered, Output& output) {
  for (bool last = false; !last;) {
    const kvdrive::filtered_t word = filtered.read();
    const unsigned valid = word.range(kvdrive::kValidBytesBit + 6, kvdrive::kValidBytesBit).to_uint();
    last = word[kvdrive::kLastBeatBit];
    ++output.beats;
    if (!last && valid != 64) ++output.partial_beats;
    for (unsigned i = 0; i < 64; ++i) {
      const unsigned byte = kvdrive::lane<8>(word, static_cast<int>(i)).to_uint();
      if (i < valid) {
        output.rows.push_back(static_cast<std::uint8_t>(byte));
      } else if (byte != 0) {
        ++output.padding;
      }
    }
  }
}

void collect_reports(Stream<kvdrive::report_t>& reports, Output& output) {
  for (bool last = false; !last;) {
    const kvdrive::report_t report = reports.read();
    last = report[kvdrive::kLastReportBit];
    output.reported_status = kvdrive::lane<32>(report, 0).to_uint();
    output.rows_seen = kvdrive::lane<32>(report, 1).to_uint();
    output.rows_kept = kvdrive::lane<32>(report, 2).to_uint();
    output.page_needed.push_back(report[kvdrive::kNeededBit]);
  }
}

void filter(Stream<beat_t>& pages, Stream<beat_t>& bitmap, const kvdrive::csim::Case& item,
            Stream<kvdrive::filtered_t>& filtered, Stream<kvdrive::report_t>& reports, Output& output) {
  output.status =
      kvdrive::page_filter(pages, bitmap, filtered, reports, item.scalar<int>("page_count"), item.scalar<int>("rows"),
                           item.scalar<int>("row_bytes"), item.scalar<int>("page_bytes"));
}

Output run(const kvdrive::csim::Case& item, bool accepted) {
  const auto page_beats = item.beats("pages");
  const auto bitmap_beats = item.beats("bitmap");
  kvdrive::Fifo<beat_t, 2> pages("pages");
  kvdrive::Fifo<beat_t, 2> bitmap("bitmap");
  kvdrive::Fifo<kvdrive::filtered_t, 2> filtered("filtered");
  kvdrive::Fifo<kvdrive::report_t, 2> reports("reports");
  Output output;
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(feed, page_beats, accepted, pages);
  DATAFLOW_STAGE(feed, bitmap_beats, accepted, bitmap);
  DATAFLOW_STAGE(filter, pages, bitmap, item, filtered, reports, output);
  DATAFLOW_STAGE(collect_rows, filtered, output);
  DATAFLOW_STAGE(collect_reports, reports, output);
  DATAFLOW_END
  return output;
}

void check(const kvdrive::csim::Case& item) {
  const int status = item.scalar<int>("status");
  const Output output = run(item, status == 0);
  kvdrive::csim::compare("status", output.status, status);
  kvdrive::csim::compare("reported status", output.reported_status, static_cast<std::uint32_t>(status));
  kvdrive::csim::compare("rows", output.rows, item.array<std::uint8_t>("kept"));
  kvdrive::csim::compare("page needed", output.page_needed, item.array<std::uint8_t>("page_needed"));
  kvdrive::csim::compare("rows seen", output.rows_seen, item.scalar<std::uint32_t>("rows_seen"));
  kvdrive::csim::compare("rows kept", output.rows_kept, item.scalar<std::uint32_t>("rows_kept"));
  const std::uint64_t full_beats = item.array<std::uint8_t>("kept").size() / 64;
  const bool rest = item.array<std::uint8_t>("kept").size() % 64 != 0;
  kvdrive::csim::compare("beats", output.beats, std::max<std::uint64_t>(full_beats + rest, 1));
  kvdrive::csim::compare("partial beats", output.partial_beats, std::uint64_t{0});
  kvdrive::csim::compare("padding", output.padding, std::uint64_t{0});
}

}  // namespace

int main(int argc, char** argv) { return kvdrive::csim::run(argc, argv, check); }
