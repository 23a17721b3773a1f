// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/fast_engine.hpp"

#include <algorithm>

#include "engine/fast/argtopk.hpp"
#include "engine/fast/attend.hpp"
#include "engine/fast/default_float.hpp"
#include "engine/fast/ffn.hpp"
#include "engine/fast/gemv.hpp"
#include "engine/fast/groups.hpp"
#include "engine/fast/page_filter.hpp"
#include "engine/fast/softmax.hpp"
#include "engine/fast/sparf.hpp"

namespace kvdrive {
namespace fast {

FastEngine::FastEngine(int threads) : kernels_(choose_kernels()), pool_(static_cast<unsigned>(std::max(threads, 1))) {}

std::uint64_t FastEngine::multiply_adds(std::uint64_t count) const {
  const std::uint64_t in_a_turn = std::uint64_t{kChains} * kernels_.lanes;
  const std::uint64_t turns = (count + in_a_turn - 1) / in_a_turn;
  return static_cast<std::uint64_t>(kernels_.multiply_adds(turns));
}

std::uint32_t FastEngine::run(std::span<std::byte> memory, std::uint64_t address, const KvPages* pages) {
  const DefaultFloat environment;
  const std::lock_guard lock(busy_);
  Job job;
  const std::uint32_t status = read_job(memory, address, job, pages);
  if (status != 0) return status;
  const Context context{kernels_, pool_, statistics_, scratch_};
  if (job.mode == abi::kSparfRows) return choose_rows(job);
  if (job.mode == abi::kSparfTokens) return choose_tokens(context, job);
  return fast::attend(context, job);
}

std::uint32_t FastEngine::choose_groups_in(std::span<std::byte> memory, std::uint64_t job,
                                           std::span<const std::byte* const> index) {
  const DefaultFloat environment;
  const std::lock_guard lock(busy_);
  return fast::choose_groups({kernels_, pool_, statistics_, scratch_}, memory, job, index);
}

std::uint32_t FastEngine::ffn(const FfnBlock& block, FfnSum* sums) {
  const DefaultFloat environment;
  const std::lock_guard lock(busy_);
  return fast::ffn({kernels_, pool_, statistics_, scratch_}, block, sums);
}

ArgtopkResult FastEngine::argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type) {
  return fast::argtopk(keys, n, k, type);
}

FilterResult FastEngine::page_filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap,
                                     std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t page_bytes) {
  return fast::page_filter(pages, bitmap, rows, row_bytes, page_bytes);
}

std::uint32_t FastEngine::gemv_rows(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t d,
                                    std::uint32_t tokens, std::uint32_t* dots) {
  const DefaultFloat environment;
  const std::lock_guard lock(busy_);
  return fast::gemv_rows({kernels_, pool_, statistics_, scratch_}, q, k, g, d, tokens, dots);
}

std::uint32_t FastEngine::gemv_columns(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t r,
                                       std::uint32_t tokens, std::uint32_t* dots) {
  const DefaultFloat environment;
  const std::lock_guard lock(busy_);
  return fast::gemv_columns({kernels_, pool_, statistics_, scratch_}, q, k, g, r, tokens, dots);
}

std::uint32_t FastEngine::gemv_accumulate(const std::uint32_t* p, const std::uint16_t* v, std::uint32_t g,
                                          std::uint32_t d, std::uint32_t tokens, Wide* acc) {
  const DefaultFloat environment;
  const std::lock_guard lock(busy_);
  return fast::gemv_accumulate({kernels_, pool_, statistics_, scratch_}, p, v, g, d, tokens, acc);
}

SoftmaxResult FastEngine::softmax(std::span<const std::int32_t> dense, const std::uint8_t* valid,
                                  std::span<const std::int32_t> tail) {
  return fast::softmax(kernels_, dense, valid, tail);
}

}  // namespace fast

std::unique_ptr<Engine> make_fast_engine(int threads) { return std::make_unique<fast::FastEngine>(threads); }
std::unique_ptr<SingleKernels> make_fast_kernels(int threads) { return std::make_unique<fast::FastEngine>(threads); }

}  // namespace kvdrive
