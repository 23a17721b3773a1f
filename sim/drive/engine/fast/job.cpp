// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/job.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "engine/fast/exact.hpp"
#include "engine/shapes.hpp"

namespace kvdrive::fast {
namespace {

constexpr std::uint64_t kScoresPerBeat = abi::kBeatBytes / sizeof(std::int32_t);

std::uint32_t check_address(std::size_t memory_bytes, std::uint64_t address, std::uint64_t bytes) {
  std::uint32_t status = bit_if(address % abi::kBeatBytes != 0, abi::kUnaligned);
  if (bytes > memory_bytes || address > memory_bytes - bytes) status |= abi::kOutOfRange;
  return status;
}

// Performs the checks that need only the numbers in the descriptor.
std::uint32_t check_sizes(const abi::AttentionJob& job) {
  std::uint32_t status = check_group(job.group) | check_head_dim(job.head_dim);
  const bool rows = job.mode == abi::kSparfRows, tokens = job.mode == abi::kSparfTokens;
  if ((rows || tokens) && (job.r < 1 || job.r > job.head_dim)) status |= abi::kBadR;
  if (!tokens && !is_finite_single(job.scale_log2e)) status |= abi::kBadScale;
  if (rows) return status;
  status |= check_tokens(std::uint64_t{job.tokens} + job.inline_tokens);
  if (tokens) {
    const std::uint32_t most = std::min(job.tokens, std::uint32_t{abi::kMaxTopK});
    if (job.tokens == 0) status |= abi::kBadLength;
    if (job.k_top < 1 || job.k_top > most || job.local > job.k_top) status |= abi::kBadK;
  }
  if (job.mode == abi::kSparfAttend) status |= check_tokens(job.count);
  return status;
}

// Checks the addresses of the arrays that the mode uses, and turns them into pointers. Arrays without elements are
// ignored. Sizes cannot overflow, because the descriptor's fields are narrow.
class Arrays {
 public:
  explicit Arrays(std::span<std::byte> memory) : memory_(memory) {}

  std::uint32_t status() const { return status_; }

  template <typename T>
  void place(T*& pointer, std::uint64_t address, std::uint64_t elements) {
    if (elements == 0) return;
    const std::uint32_t status = check_address(memory_.size(), address, elements * sizeof(T));
    if (status == 0) pointer = reinterpret_cast<T*>(memory_.data() + address);
    status_ |= status;
  }

 private:
  std::span<std::byte> memory_;
  std::uint32_t status_ = 0;
};

std::uint32_t place_arrays(std::span<std::byte> memory, const abi::AttentionJob& from, Job& job) {
  Arrays arrays(memory);
  const std::uint64_t g = from.group, d = from.head_dim, s = from.tokens, t = from.inline_tokens;
  arrays.place(job.q, from.q, g * d);
  arrays.place(job.result, from.result, records_of(from.group));
  if (job.mode == abi::kSparfRows || job.mode == abi::kSparfTokens) arrays.place(job.rows, from.rows, abi::kBeatBytes);
  if (job.mode == abi::kSparfRows) return arrays.status();

  if (from.valid != 0) arrays.place(job.valid, from.valid, bitmap_bytes(s));
  job.inline_stride = ceil_div(t, kScoresPerBeat) * kScoresPerBeat;
  arrays.place(job.inline_scores, from.inline_scores, g * job.inline_stride);
  if (job.mode == abi::kSparfTokens) {
    arrays.place(job.k, from.k, ceil_div(s, abi::kLanes) * from.r * abi::kLanes);
    job.out_bytes = bitmap_bytes(s);
  } else {
    arrays.place(job.k, from.k, job.pages != nullptr ? 0 : s * d);
    arrays.place(job.v, from.v, job.pages != nullptr ? 0 : s * d);
    arrays.place(job.inline_v, from.inline_v, t * d);
    job.out_bytes = g * d * (job.mode == abi::kPartial ? sizeof(float) : sizeof(std::uint16_t));
  }
  if (job.mode == abi::kSparfAttend) arrays.place(job.v_sum, from.v_sum, d);
  arrays.place(job.out, from.out, job.out_bytes);
  return arrays.status();
}

// Checks the values that SPARF_TOKENS reads from the outputs of SPARF_ROWS.
std::uint32_t check_content(const Job& job) {
  if (job.mode != abi::kSparfTokens) return 0;
  unsigned chosen = 0;
  for (unsigned i = 0; i < job.d; ++i) chosen += bit(job.rows, i) ? 1 : 0;
  std::uint32_t status = bit_if(chosen != job.r, abi::kBadR);
  for (unsigned h = 0; h < job.g; ++h) {
    const std::uint32_t scale = job.result[h / abi::kMaxGroup].scale[h % abi::kMaxGroup];
    status |= bit_if(!is_finite_single(scale), abi::kBadScale);
  }
  return status;
}

std::uint32_t check_pages(const Job& job) {
  return bit_if(job.mode == abi::kSparfRows || job.mode == abi::kSparfTokens, abi::kBadMode);
}

}  // namespace

std::uint32_t check_group(std::uint32_t g) { return bit_if(!serves_group(g), abi::kBadGroup); }

std::uint32_t check_head_dim(std::uint32_t d) { return bit_if(!serves_head_dim(d), abi::kBadHeadDim); }

std::uint32_t check_tokens(std::uint64_t tokens) {
  return bit_if(tokens < 1 || tokens > abi::kMaxTokens, abi::kBadLength);
}

std::uint64_t valid_word(const Job& job, std::uint32_t first) {
  const std::uint32_t left = job.tokens - first;
  const std::uint64_t inside = left >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1;
  if (job.valid == nullptr) return inside;
  std::uint64_t word = 0;
  std::memcpy(&word, job.valid + first / 8, std::min<std::size_t>(sizeof(word), ceil_div(left, 8)));
  return word & inside;
}

std::uint32_t read_job(std::span<std::byte> memory, std::uint64_t address, Job& job, const KvPages* pages) {
  std::uint32_t status = check_address(memory.size(), address, sizeof(abi::AttentionJob));
  if (status != 0) return status;
  abi::AttentionJob from;
  std::memcpy(&from, memory.data() + address, sizeof(from));
  if (from.version != abi::kAbiVersion) status |= abi::kBadVersion;
  if (from.mode > abi::kSparfAttend) return status | abi::kBadMode;
  job = {};
  job.mode = static_cast<abi::Mode>(from.mode);
  job.pages = pages;
  job.g = from.group;
  job.d = from.head_dim;
  job.r = from.r;
  job.tokens = from.tokens;
  job.inline_tokens = from.inline_tokens;
  job.k_top = from.k_top;
  job.local = from.local;
  job.scale_log2e = from.scale_log2e;
  job.count = from.count;
  status |= check_sizes(from) | place_arrays(memory, from, job);
  if (pages != nullptr) status |= check_pages(job);
  return status != 0 ? status : check_content(job);
}

}  // namespace kvdrive::fast
