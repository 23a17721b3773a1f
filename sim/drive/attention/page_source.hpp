// SPDX-License-Identifier: Apache-2.0
// The source of the rows of a command's heads. Pages are copied (copied_pages), read in place in the page cache
// (mapped_pages), or streamed around it (streamed_pages). A source is made for one command and used by one run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "attention/job_memory.hpp"
#include "attention/runs.hpp"
#include "engine/engine.hpp"
#include "ftl/ftl.hpp"

namespace kvdrive {

struct FilterCounters {
  std::uint64_t pages = 0;       // pages that were read because of a wanted row
  std::uint64_t pages_left = 0;  // pages that were not read
  std::uint64_t rows_kept = 0;
  std::uint64_t rows_dropped = 0;  // rows that were not wanted, in the pages that were read
  std::uint64_t bytes_kept = 0;

  void count(std::uint64_t pages_read, std::uint64_t pages_there, std::uint64_t rows_per_page, std::uint64_t kept,
             std::uint64_t row_bytes) {
    pages += pages_read;
    pages_left += pages_there - pages_read;
    rows_kept += kept;
    rows_dropped += pages_read * rows_per_page - kept;
    bytes_kept += kept * row_bytes;
  }
};

// The wanted rows in pages of a list.
struct RowRequest {
  ListId list = 0;
  std::uint32_t first_page = 0;
  std::uint32_t pages = 0;  // pages that could hold a wanted row
  std::uint32_t rows_per_page = 1;
  std::uint32_t row_bytes = abi::kPageBytes;
  Runs rows{};           // wanted rows, numbered from the first page on
  bool filtered = true;  // false: whole pages are read; their first `row_bytes` are needed
  enum class Keep : std::uint8_t { kNothing, kHot, kIndex } keep = Keep::kNothing;  // in drive memory, see KeptPages

  // Where pages of the request are kept; null if they are not.
  KeptPages* kept(ReadPath& path) const {
    if (keep == Keep::kNothing) return nullptr;
    KeptPages& pages = path.kept(keep == Keep::kIndex);
    return pages.active() ? &pages : nullptr;
  }

  // Calls use(page, run) for the runs of wanted rows, in order. A run that crosses pages is cut into one for each page.
  template <typename Use>
  void each_run(Use use) const {
    for (const Run& run : rows) {
      for (std::uint32_t row = run.first, end = 0; row < run.end; row = end) {
        const std::uint32_t page = row / rows_per_page;
        end = std::min(run.end, (page + 1) * rows_per_page);
        use(page, Run{row, end});
      }
    }
  }

  // Calls use(page, number of wanted rows) for each page with a wanted row, in order.
  template <typename Use>
  void each_page(Use use) const {
    std::uint32_t page = 0, count = 0;
    each_run([&](std::uint32_t next, const Run& run) {
      if (count > 0 && next != page) {
        use(page, count);
        count = 0;
      }
      page = next;
      count += run.count();
    });
    if (count > 0) use(page, count);
  }
};

// Rows that were requested together.
class RowBatch {
 public:
  // `stays`: true if the bytes stay valid as long as the batch.
  using Use = std::function<void(const Run& rows, const std::byte* bytes, bool stays)>;

  RowBatch(bool all_read, Ns read_done) : whole(all_read), done(read_done) {}
  RowBatch(const RowBatch&) = delete;
  RowBatch& operator=(const RowBatch&) = delete;
  virtual ~RowBatch() = default;

  // Calls use(rows, bytes, stays) for the wanted rows of the next request, in order, with the bytes of consecutive rows
  // of a page together. Precondition: `whole`.
  virtual void next(const Use& use) = 0;

  const bool whole;  // false: at least one page is lost
  const Ns done;     // device time at which all rows have arrived
};

class PageSource {
 public:
  // K and V of an EXACT or PARTIAL job.
  struct Dense {
    bool whole = true;  // false: at least one page is lost
    Ns done = 0;
    const KvPages* pages = nullptr;  // valid until the next call; null: K and V are in job memory
  };

  PageSource() = default;
  PageSource(const PageSource&) = delete;
  PageSource& operator=(const PageSource&) = delete;
  virtual ~PageSource() = default;

  // Returns K and V of all tokens of head `index` of the command. Heads must be requested in order, each once.
  virtual Dense dense(std::size_t index) = 0;

  // Starts to read rows. At most `pieces` pieces of DirectReads::kBufferBytes are read ahead of their use.
  virtual std::unique_ptr<RowBatch> read(std::vector<RowRequest> requests, Ns ready, std::size_t pieces) = 0;

  // The number of groups that were found damaged after their use. If it is not 0, the command's results are invalid.
  virtual std::uint32_t damaged() = 0;

  // To be called when the query is done. The source may begin to read for the next one.
  virtual void close() {}
};

}  // namespace kvdrive
