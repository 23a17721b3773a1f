// SPDX-License-Identifier: Apache-2.0
// The compute engine of the drive. Every engine gives the bits of docs/arithmetic.md.
//
// `attention` sees what hardware sees: a memory and the address of a job in it. The other calls expose the
// single kernels on plain arrays; lengths are validated by the engine and reported as a status word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/abi.hpp"

namespace kvdrive {

struct ArgtopkResult {
  std::uint32_t status = 0;
  std::vector<std::uint32_t> indices;  // ascending
  std::vector<std::uint8_t> bitmap;    // whole beats
};

struct FilterResult {
  std::uint32_t status = 0;
  std::vector<std::uint8_t> rows;  // kept rows, without the padding of the last beat
  std::uint32_t rows_seen = 0;
  std::uint32_t rows_kept = 0;
  std::vector<std::uint8_t> page_needed;  // one per page, 0 or 1
};

struct SoftmaxResult {
  std::uint32_t status = 0;
  std::vector<std::uint32_t> p;  // dense tokens, then the tail; LSB 2^-31
  std::int32_t max = 0;
  std::uint64_t sum = 0;  // LSB 2^-31
};

// A 128-bit two's complement integer, least significant word first.
struct Wide {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
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

class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual const char* name() const = 0;

  // Runs the AttentionJob at byte `job` of `memory` (64-byte aligned). Returns its status word (docs/jobs.md).
  virtual std::uint32_t attention(std::span<std::byte> memory, std::uint64_t job) = 0;

  // EXACT and PARTIAL over K and V in pages; the descriptor's own addresses of them do not count. Only where
  // `reads_pages`.
  virtual bool reads_pages() const { return false; }
  virtual unsigned threads() const { return 1; }  // that compute
  virtual void wake() {}                          // a job comes soon
  virtual std::uint32_t attention(std::span<std::byte>, std::uint64_t, const KvPages&) { return abi::kBadMode; }

  // `keys`: n binary32 patterns (uint32_t) or n binary16 patterns (uint16_t), by `type`.
  virtual ArgtopkResult argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type) = 0;

  // `pages`: whole pages; `bitmap`: at least ceil(rows / 8) bytes, bit i = row i wanted.
  virtual FilterResult page_filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap,
                                   std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t page_bytes) = 0;

  // q [g][d], k [tokens][d] binary16 -> dots [g][tokens], binary32 patterns.
  virtual std::uint32_t gemv_rows(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t d,
                                  std::uint32_t tokens, std::uint32_t* dots) = 0;

  // q [g][r], k [ceil(tokens/32)][r][32] binary16 -> dots [g][tokens], binary32 patterns. 1 <= r <= 256.
  virtual std::uint32_t gemv_columns(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t r,
                                     std::uint32_t tokens, std::uint32_t* dots) = 0;

  // p [g][tokens] (LSB 2^-31, at most 2^31 with 20 significant bits), v [tokens][d] binary16 -> acc [g][d], LSB 2^-55.
  virtual std::uint32_t gemv_accumulate(const std::uint32_t* p, const std::uint16_t* v, std::uint32_t g,
                                        std::uint32_t d, std::uint32_t tokens, Wide* acc) = 0;

  // Scores of one head, Q12.20. `valid`: bitmap of the dense tokens, or null for all.
  virtual SoftmaxResult softmax(std::span<const std::int32_t> dense, const std::uint8_t* valid,
                                std::span<const std::int32_t> tail) = 0;
};

std::unique_ptr<Engine> make_hls_engine();
std::unique_ptr<Engine> make_fast_engine(int threads = 1);

}  // namespace kvdrive
