// SPDX-License-Identifier: Apache-2.0
#include "attention/copied_pages.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "code_order.hpp"

namespace kvdrive {
namespace {

// Memory for at least `bytes`, from a buffer that a batch gave back if there is one.
std::vector<std::byte> take_buffer(std::vector<std::vector<std::byte>>& buffers, std::size_t bytes) {
  std::vector<std::byte> buffer;
  if (!buffers.empty()) {
    buffer = std::move(buffers.back());
    buffers.pop_back();
  }
  buffer.resize(std::max(buffer.size(), bytes));
  return buffer;
}

// Rows in consecutive memory. The batch owns the pages that were read.
class RowsInMemory final : public RowBatch {
 public:
  RowsInMemory(bool all_read, Ns read_done, std::vector<RowRequest> requests, std::vector<std::byte> pages,
               std::vector<std::vector<std::byte>>& buffers)
      : RowBatch(all_read, read_done), requests_(std::move(requests)), pages_(std::move(pages)), buffers_(buffers) {}
  ~RowsInMemory() override { give_pages_back(); }
  void give_pages_back() {
    if (!pages_.empty()) buffers_.push_back(std::move(pages_));
    pages_.clear();
  }

  const std::vector<RowRequest>& requests() const { return requests_; }
  std::span<const std::byte> pages() const { return pages_; }

  // `kept`: the rows' own memory if they need some.
  void add(const std::byte* rows, std::vector<std::uint8_t> kept) {
    rows_.push_back(rows);
    kept_.push_back(std::move(kept));
  }

  void next(const Use& use) override {
    const RowRequest& request = requests_[next_];
    const std::uint64_t stride = request.filtered ? request.row_bytes : abi::kPageBytes;
    const std::byte* bytes = rows_[next_++];
    request.each_run([&](auto, const Run& run) {
      use(run, bytes, true);
      bytes += run.count() * stride;
    });
  }

 private:
  const std::vector<RowRequest> requests_;
  std::vector<std::byte> pages_;
  std::vector<std::vector<std::byte>>& buffers_;
  std::vector<const std::byte*> rows_;
  std::vector<std::vector<std::uint8_t>> kept_;
  std::size_t next_ = 0;
};

std::uint32_t pages_of(const RowRequest& request) {
  std::uint32_t pages = 0;
  request.each_page([&](auto, auto) { ++pages; });
  return pages;
}

// Adds the reads of a request. Pages that drive memory keeps are copied at once.
void add_reads(const RowRequest& request, std::byte* to, ReadPath& path, std::vector<GroupRead>& reads) {
  KeptPages* const kept = request.kept(path);
  request.each_page([&](std::uint32_t page, std::uint32_t rows) {
    const std::uint32_t index = request.first_page + page;
    const std::uint32_t wanted = rows * request.row_bytes;
    if (const std::byte* const found = kept == nullptr ? nullptr : kept->find(path.unit(request.list, index))) {
      std::memcpy(to, found, abi::kPageBytes);
    } else {
      reads.push_back({request.list, index, to, wanted});
    }
    to += abi::kPageBytes;
  });
}

// Keeps the pages of a request that were read.
void keep(const RowRequest& request, const std::byte* pages, ReadPath& path) {
  KeptPages* const kept = request.kept(path);
  if (kept == nullptr) return;
  request.each_page([&](std::uint32_t page, auto) {
    kept->keep(path.unit(request.list, request.first_page + page), pages);
    pages += abi::kPageBytes;
  });
}

// Calls use(number of the page among those that were read, run) for the runs of wanted rows.
template <typename Use>
void each_run_read(const RowRequest& request, Use use) {
  std::size_t number = 0;
  std::uint32_t last = UINT32_MAX;
  request.each_run([&](std::uint32_t page, const Run& run) {
    if (last != UINT32_MAX && page != last) ++number;
    last = page;
    use(number, run);
  });
}

// Picks rows that the filter does not support; the drive's processor copies them.
std::vector<std::uint8_t> pick(const RowRequest& request, std::span<const std::byte> pages) {
  std::vector<std::uint8_t> kept(std::size_t{request.rows.count()} * request.row_bytes);
  std::uint8_t* to = kept.data();
  each_run_read(request, [&](std::size_t page, const Run& run) {
    const std::size_t bytes = std::size_t{run.count()} * request.row_bytes;
    const std::byte* const from = pages.data() + page * abi::kPageBytes;
    std::memcpy(to, from + std::size_t{run.first % request.rows_per_page} * request.row_bytes, bytes);
    to += bytes;
  });
  return kept;
}

// Rows that are too long for the filter go through it in parts. Row i of the filter is then row i / parts of the pages.
std::vector<std::uint8_t> filter(Engine& engine, const RowRequest& request, std::span<const std::byte> pages) {
  if (request.row_bytes % abi::kRowBytesStep != 0) return pick(request, pages);
  const std::uint32_t parts = (request.row_bytes + abi::kMaxRowBytes - 1) / abi::kMaxRowBytes;
  const auto rows = static_cast<std::uint32_t>(pages.size() / abi::kPageBytes * request.rows_per_page * parts);
  std::vector<std::uint8_t> bitmap(whole_beats((rows + 7) / 8));
  each_run_read(request, [&](std::size_t page, const Run& run) {
    const std::size_t first = (page * request.rows_per_page + run.first % request.rows_per_page) * parts;
    for (std::size_t bit = first; bit < first + std::size_t{run.count()} * parts; ++bit) {
      bitmap[bit / 8] |= static_cast<std::uint8_t>(1U << bit % 8);
    }
  });
  auto filtered = engine.filter({reinterpret_cast<const std::uint8_t*>(pages.data()), pages.size()}, bitmap, rows,
                                request.row_bytes / parts, abi::kPageBytes);
  if (filtered.status != 0) throw std::runtime_error("the page filter refused its pages");
  return std::move(filtered.rows);
}

}  // namespace

// Plans the reads of the rows of all tokens. Rows in groups without a valid token stay zero. Rows in 8 or 4 bits are
// read to `coded`, because they do not lie in job memory as they are stored.
void CopiedPages::place_rows(const Head& head, const HeadRows& rows, RowFetch& fetch, Coded& coded) {
  const std::uint32_t end = head.tokens(), per_group = rows.tokens_per_group();
  JobMemory& memory = context_.memory;
  if (memory.holds_codes()) {
    const std::uint32_t steps = format_parts(rows.head_dim()) * part_step_bytes(rows.format());
    coded.steps = memory.place(std::uint64_t{end} * steps);
    coded.address = memory.place(std::uint64_t{end} * (rows.row_bytes() - steps));
  } else {
    coded.address = memory.place_zeros(std::uint64_t{end} * rows.half_bytes());
  }
  std::byte* to = memory.at(coded.address);
  if (rows.format() != nvme::kBinary16) {
    coded.bytes.resize(std::size_t{end} * rows.row_bytes());
    to = coded.bytes.data();
  }
  const auto add = [&](std::uint32_t first, std::uint32_t until) {
    if (first < until) fetch.add(rows, first, until - first, to + std::uint64_t{first} * rows.row_bytes());
  };
  const std::vector<bool> wanted = head.wanted_groups(rows);
  for (std::uint32_t group = 0; group < wanted.size(); ++group) {
    if (wanted[group]) add(group * per_group, std::min((group + 1) * per_group, end));
  }
  add(rows.tokens_in_groups(), end);
}

// Splits rows for an engine that reads codes. For others the drive's processor decodes them.
void CopiedPages::unpack(const HeadRows& rows, const Coded& coded) {
  JobMemory& memory = context_.memory;
  std::byte* const to = memory.at(coded.address);
  if (memory.holds_codes()) {
    order_codes(rows.format(), rows.head_dim(), coded.bytes, to, memory.at(coded.steps));
  } else if (rows.format() != nvme::kBinary16) {
    decode_rows(rows.format(), rows.head_dim(), coded.bytes, reinterpret_cast<std::uint16_t*>(to));
  }
}

PageSource::Dense CopiedPages::dense(std::size_t index) {
  const Head& head = heads_[index];
  JobMemory& memory = context_.memory;
  // Codes and their step bytes take less than binary16 numbers, but for the end of their last beats.
  memory.reserve(2 * (whole_beats(std::uint64_t{head.tokens()} * head.k.half_bytes()) + abi::kBeatBytes));
  RowFetch fetch;
  Coded k, v;
  place_rows(head, head.k, fetch, k);
  place_rows(head, head.v, fetch, v);
  memory.job.k = k.address, memory.job.rows = k.steps;
  memory.job.v = v.address, memory.job.v_sum = v.steps;
  const auto read = fetch.run(context_.ftl, context_.ready, Sink::kComputer);
  if (!read.whole) return {.whole = false, .done = read.done};
  context_.staged_bytes += fetch.staged_bytes();
  unpack(head.k, k);
  unpack(head.v, v);
  return {.done = read.done};
}

std::unique_ptr<RowBatch> CopiedPages::read(std::vector<RowRequest> requests, Ns ready, std::size_t) {
  std::vector<std::size_t> places;
  std::size_t pages = 0;
  for (const RowRequest& request : requests) {
    places.push_back(pages * abi::kPageBytes);
    pages += pages_of(request);
  }
  places.push_back(pages * abi::kPageBytes);
  std::vector<std::byte> contents = take_buffer(context_.buffers, places.back());
  bool whole = true;
  Ns done = ready;
  for (const bool filtered : {true, false}) {
    std::vector<GroupRead> reads;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].filtered != filtered) continue;
      add_reads(requests[i], contents.data() + places[i], context_.ftl.read_path(), reads);
    }
    if (reads.empty()) continue;
    const auto read = context_.ftl.read(reads, ready, Sink::kComputer);
    whole &= read.whole;
    done = std::max(done, read.done);
  }
  auto batch = std::make_unique<RowsInMemory>(whole, done, std::move(requests), std::move(contents), context_.buffers);
  if (!whole) return batch;
  for (std::size_t i = 0; i + 1 < places.size(); ++i) {
    const RowRequest& request = batch->requests()[i];
    const auto read = batch->pages().subspan(places[i], places[i + 1] - places[i]);
    keep(request, read.data(), context_.ftl.read_path());
    if (!request.filtered) {
      batch->add(read.data(), {});
      continue;
    }
    auto kept = read.empty() ? std::vector<std::uint8_t>() : filter(context_.engine, request, read);
    const auto* const bytes = reinterpret_cast<const std::byte*>(kept.data());
    batch->add(bytes, std::move(kept));
    context_.filtered.count(read.size() / abi::kPageBytes, request.pages, request.rows_per_page, request.rows.count(),
                            request.row_bytes);
  }
  if (std::ranges::all_of(batch->requests(), &RowRequest::filtered)) batch->give_pages_back();
  return batch;
}

}  // namespace kvdrive
