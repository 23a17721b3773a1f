// SPDX-License-Identifier: Apache-2.0
// An engine is where a drive's jobs run: memory that it owns, attention jobs in that memory, and the page filter.
//
// Every engine gives the bits of docs/arithmetic.md for every shape that a command may have (engine/shapes.hpp). How to
// add one: docs/extend.md. What only `kvdrive kernel` calls is in single_kernels.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/abi.hpp"

namespace kvdrive {

struct FilterResult {
  std::uint32_t status = 0;
  std::vector<std::uint8_t> rows;  // kept rows, without the padding of the last beat
  std::uint32_t rows_seen = 0;
  std::uint32_t rows_kept = 0;
  std::vector<std::uint8_t> page_needed;  // one per page, 0 or 1
};

// K and V of a job in pages: row t is row t % rows_per_page of page t / rows_per_page. They come in pieces, so that not
// all of them need to be in memory together.
class KvPages {
 public:
  // Pages number `first` and on. Null: none of its rows is valid.
  using Visit = std::function<void(std::size_t first, std::span<const std::byte* const> pages)>;

  explicit KvPages(std::uint32_t rows_per_page) : rows_per_page_(rows_per_page) {}
  KvPages(const KvPages&) = delete;
  KvPages& operator=(const KvPages&) = delete;
  virtual ~KvPages() = default;

  std::uint32_t rows_per_page() const { return rows_per_page_; }
  // All pages of K or of V in order; each stays until its visit returns. An engine wants K once, then V once; only in
  // rare cases V again.
  virtual void visit(abi::KvKind kind, const Visit& visit) const = 0;
  // Compares pages `first` and on with their checksums, and remembers what is damaged; the job's results do not count
  // then. The engine calls it for all pages of a visit, a few at a time, just before it reads them: they are in its
  // cache from then on. May be called from several threads.
  virtual void check(abi::KvKind kind, std::size_t first, std::span<const std::byte* const> pages) const = 0;

 private:
  std::uint32_t rows_per_page_;
};

// Memory that an engine owns, as the drive sees it: of this process, or the buffer of a card that the drive's reads go
// to.
class EngineMemory {
 public:
  EngineMemory() = default;
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;
  virtual ~EngineMemory() = default;

  // The first `bytes` bytes are in use from now on, 64-byte aligned; what they held stays. Pointers from before are
  // invalid if it is more than ever before. Throws std::bad_alloc.
  virtual std::span<std::byte> use(std::uint64_t bytes) = 0;
  // Those that are in use.
  virtual std::span<std::byte> used() = 0;
};

class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual const char* name() const = 0;

  // The memory that jobs address.
  virtual EngineMemory& memory() = 0;

  // Runs the AttentionJob at byte `job` of the memory in use. Returns its status word (docs/jobs.md). `pages`: K and V
  // of an EXACT or PARTIAL job, in the place of the descriptor's addresses; null unless the engine `reads_pages`.
  virtual std::uint32_t attend(std::uint64_t job, const KvPages* pages = nullptr) = 0;

  // Runs a job in memory of somebody else. By default it goes through the engine's own: copied there and back.
  virtual std::uint32_t attend_in(std::span<std::byte> elsewhere, std::uint64_t job);

  // Keeps the wanted rows of whole pages. `bitmap`: at least ceil(rows / 8) bytes, bit i = row i wanted; rows of
  // `row_bytes`, a multiple of ROW_BYTES_STEP.
  virtual FilterResult filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap,
                              std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t page_bytes) = 0;

  // True if it computes on pages where they are: nothing is copied into its memory then.
  virtual bool reads_pages() const { return false; }
  virtual unsigned threads() const { return 1; }  // that compute
  virtual void wake() {}                          // a job comes soon
};

std::unique_ptr<Engine> make_hls_engine();
std::unique_ptr<Engine> make_fast_engine(int threads = 1);

}  // namespace kvdrive
