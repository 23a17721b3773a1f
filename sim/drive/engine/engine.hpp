// SPDX-License-Identifier: Apache-2.0
// An engine runs a drive's jobs. It owns memory, computes attention jobs in that memory, and filters pages.
//
// Every engine computes the exact bits of docs/arithmetic.md for every shape that a command may have
// (engine/shapes.hpp). docs/extend.md tells how to add an engine. Functions that only `kvdrive kernel` needs are in
// single_kernels.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/abi.hpp"
#include "engine/ffn.hpp"
#include "formats.hpp"

namespace kvdrive {

struct FilterResult {
  std::uint32_t status = 0;
  std::vector<std::uint8_t> rows;  // kept rows, without the padding of the last beat
  std::uint32_t rows_seen = 0;
  std::uint32_t rows_kept = 0;
  std::vector<std::uint8_t> page_needed;  // one per page: 1 if it holds a wanted row, else 0
};

// K and V of a job in pages: row t is row t % rows_per_page of page t / rows_per_page, in `format`. Pages come in
// pieces, so that they need not all be in memory together.
class KvPages {
 public:
  // Takes pages `first` and on. A null page has no valid row.
  using Visit = std::function<void(std::size_t first, std::span<const std::byte* const> pages)>;

  KvPages(std::uint32_t rows_per_page, RowFormat format) : rows_per_page_(rows_per_page), format_(format) {}
  KvPages(const KvPages&) = delete;
  KvPages& operator=(const KvPages&) = delete;
  virtual ~KvPages() = default;

  std::uint32_t rows_per_page() const { return rows_per_page_; }
  RowFormat format() const { return format_; }
  // Visits all pages of K or of V in order. Each page stays valid until its visit returns. An engine visits K once,
  // then V once, and only rarely V again.
  virtual void visit(abi::KvKind kind, const Visit& visit) const = 0;
  // Compares pages `first` and on with their checksums and records damage, which invalidates the job's results. The
  // engine calls it for all pages of a visit, a few at a time, just before it reads them, because that brings them into
  // its cache. May be called from several threads.
  virtual void check(abi::KvKind kind, std::size_t first, std::span<const std::byte* const> pages) const = 0;

 private:
  std::uint32_t rows_per_page_;
  RowFormat format_;
};

// The drive's view of the memory that an engine owns. It is memory of this process, or the buffer of a card that is the
// target of the drive's reads.
class EngineMemory {
 public:
  EngineMemory() = default;
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;
  virtual ~EngineMemory() = default;

  // Sets the number of bytes in use; they are 64-byte aligned and keep their contents. Growing beyond the largest size
  // so far makes earlier pointers invalid. Throws std::bad_alloc.
  virtual std::span<std::byte> use(std::uint64_t bytes) = 0;
  // The bytes in use.
  virtual std::span<std::byte> used() = 0;
};

// Jobs that run beside the caller, on an engine whose compute units work on their own. The caller lays out the next job
// meanwhile, in another part of the memory.
class JobQueue {
 public:
  JobQueue() = default;
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;
  virtual ~JobQueue() = default;

  // The number of EXACT and PARTIAL jobs of this shape that can run together. 0: they go through `attend`.
  virtual unsigned units(unsigned group, unsigned head_dim) const = 0;
  // Starts the job at byte `job`, whose arrays all lie in the `bytes` bytes from there on. Precondition: fewer than
  // `units` jobs run.
  virtual void start(std::uint64_t job, std::uint64_t bytes) = 0;
  // Waits for the job that was started first. Returns its status word. Throws std::runtime_error if the job fails; no
  // job runs then.
  virtual std::uint32_t finish() = 0;
  // Counts the times that the memory was replaced. Reads that were under way then have to be repeated.
  virtual std::uint64_t generation() const = 0;
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

  // Runs the AttentionJob at byte `job` of the memory in use. Returns its status word (docs/jobs.md). `pages` gives K
  // and V of an EXACT, PARTIAL or SPARF_ATTEND job in place of its addresses; null unless the engine `reads_pages`.
  virtual std::uint32_t attend(std::uint64_t job, const KvPages* pages = nullptr) = 0;

  // Runs a job in memory that the engine does not own. By default the memory is copied into the engine's own and back.
  virtual std::uint32_t attend_in(std::span<std::byte> elsewhere, std::uint64_t job);

  // True if the engine runs jobs over codes, so that rows in 8 or 4 bits need not be decoded.
  virtual bool reads_codes() const { return false; }
  // Runs the job over codes at byte `job` of the memory in use (docs/jobs.md). `has_code_kernel` is true for its shape.
  // Returns its status word.
  virtual std::uint32_t attend_codes(std::uint64_t) { return abi::kBadMode; }

  // Runs the GroupChoiceJob at byte `job` of the memory in use, whose addresses are valid. Returns its status word. By
  // default the drive's processor computes it. `index`: the pages of the index in place of the descriptor's address;
  // empty unless the engine `reads_pages`.
  virtual std::uint32_t choose_groups(std::uint64_t job, std::span<const std::byte* const> index = {});

  // Adds some neurons of a feed-forward part to sums [tokens][hidden]. Returns NON_FINITE or 0; after NON_FINITE the
  // sums mean nothing. By default the drive's processor computes them.
  virtual std::uint32_t ffn(const FfnBlock& block, FfnSum* sums);

  // Keeps the wanted rows of whole pages. `bitmap`: at least ceil(rows / 8) bytes, where bit i set means that row i is
  // wanted. `row_bytes` is a multiple of ROW_BYTES_STEP.
  virtual FilterResult filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap,
                              std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t page_bytes) = 0;

  // True if the engine computes on pages in place. Nothing is copied into its memory then.
  virtual bool reads_pages() const { return false; }
  virtual unsigned threads() const { return 1; }  // number of threads that compute
  // Calls `work`, which runs jobs, with the threads that compute ready for them.
  virtual void with_threads(const std::function<void()>& work) { work(); }
  // Null: the engine runs one job at a time, while the caller waits.
  virtual JobQueue* queue() { return nullptr; }
  // What the user should know about the engine, one sentence each.
  virtual std::vector<std::string> notices() const { return {}; }
  // How many roundings were decided by exact integers, because a faster sum left them open.
  virtual std::uint64_t exact_sums() const { return 0; }
};

std::unique_ptr<Engine> make_hls_engine();
std::unique_ptr<Engine> make_fast_engine(int threads = 1);

}  // namespace kvdrive
