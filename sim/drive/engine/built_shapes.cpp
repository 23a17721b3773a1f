// SPDX-License-Identifier: Apache-2.0
#include "engine/built_shapes.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/fast/job.hpp"
#include "engine/shapes.hpp"

namespace kvdrive {
namespace {

abi::AttentionJob read_fields(std::span<const std::byte> memory, std::uint64_t job) {
  abi::AttentionJob fields;
  std::memcpy(&fields, memory.data() + job, sizeof fields);
  return fields;
}

// Rows that follow one another in memory.
struct Rows {
  std::uint64_t address;
  std::uint64_t count;
  std::uint64_t bytes;  // bytes of a row
};

}  // namespace

// The kernel calls of one job. Their descriptor and padded copies lie behind the job's own memory. Precondition: the
// job passed its checks.
class BuiltShapes::Calls {
 public:
  Calls(EngineMemory& memory, const abi::AttentionJob& fields, std::uint64_t bytes)
      : memory_(memory), fields_(fields), dim_(built_head_dim(fields.head_dim)), end_(bytes) {}

  std::uint32_t run(const Kernel& kernel) {
    job_ = fields_;
    job_.head_dim = static_cast<std::uint16_t>(dim_);
    descriptor_ = place(sizeof job_);
    widen_shared();
    std::uint32_t status = 0;
    for (unsigned call = 0; call < kernel_calls(fields_.group); ++call) status |= run_call(kernel, call);
    if (status != 0) clear_results(status);
    return status;
  }

 private:
  std::byte* at(std::uint64_t address) { return memory_.used().data() + address; }

  std::uint64_t place(std::uint64_t bytes) {
    const std::uint64_t address = (end_ + abi::kBeatBytes - 1) / abi::kBeatBytes * abi::kBeatBytes;
    end_ = address + bytes;
    memory_.use(end_);
    return address;
  }

  // Copies `from` to `rows` rows of `bytes` bytes each; missing parts are zero.
  std::uint64_t widened(const Rows& from, std::uint64_t rows, std::uint64_t bytes) {
    const std::uint64_t address = place(rows * bytes);
    std::memset(at(address), 0, rows * bytes);
    for (std::uint64_t i = 0; i < from.count; ++i) {
      std::memcpy(at(address + i * bytes), at(from.address + i * from.bytes), from.bytes);
    }
    return address;
  }

  // Pads the arrays that all calls read with columns of zeros.
  void widen_shared() {
    if (dim_ == fields_.head_dim) return;
    const auto halves = [&](std::uint64_t address, std::uint64_t rows) {
      return rows == 0 ? address : widened({address, rows, row_bytes()}, rows, dim_ * 2);
    };
    if (fields_.mode != abi::kSparfRows && fields_.mode != abi::kSparfTokens) {
      job_.k = halves(fields_.k, fields_.tokens);
      job_.v = halves(fields_.v, fields_.tokens);
      job_.inline_v = halves(fields_.inline_v, fields_.inline_tokens);
    }
    if (fields_.mode == abi::kSparfAttend) {
      job_.v_sum = widened({fields_.v_sum, 1, fields_.head_dim * 8ULL}, 1, dim_ * 8);
    }
  }

  std::uint32_t run_call(const Kernel& kernel, unsigned call) {
    const auto [first, heads] = kernel_call(fields_.group, call);
    const unsigned group = built_group(heads);
    const std::uint64_t mark = end_;
    const std::uint64_t score_bytes =
        (fields_.inline_tokens * 4ULL + abi::kBeatBytes - 1) / abi::kBeatBytes * abi::kBeatBytes;
    job_.group = static_cast<std::uint8_t>(group);
    job_.result = fields_.result + call * sizeof(abi::AttentionResult);
    job_.q = fields_.q + first * row_bytes();
    job_.inline_scores = fields_.inline_scores + first * score_bytes;
    job_.out = fields_.out + first * out_bytes(fields_.head_dim);
    const bool narrow = dim_ != fields_.head_dim, whole_out = fields_.mode == abi::kSparfTokens;
    if (narrow || group != heads) {
      job_.q = widened({job_.q, heads, row_bytes()}, group, dim_ * 2);
      if (group != heads) job_.inline_scores = widened({job_.inline_scores, heads, score_bytes}, group, score_bytes);
      if (!whole_out) job_.out = place(group * out_bytes(dim_));
    }
    std::memcpy(at(descriptor_), &job_, sizeof job_);
    const std::uint32_t status = kernel(memory_.used(), descriptor_);
    if (whole_out || fields_.mode == abi::kSparfRows) return status;
    for (unsigned i = 0; i < heads && (narrow || group != heads); ++i) {
      std::memcpy(at(fields_.out + (first + i) * out_bytes(fields_.head_dim)), at(job_.out + i * out_bytes(dim_)),
                  out_bytes(fields_.head_dim));
    }
    clear_record(job_.result, heads);
    end_ = mark;
    return status;
  }

  // Clears the fields that EXACT, PARTIAL and SPARF_ATTEND write for the heads from `from` on.
  void clear_record(std::uint64_t address, unsigned from) {
    abi::AttentionResult record;
    std::memcpy(&record, at(address), sizeof record);
    for (unsigned h = from; h < abi::kMaxGroup; ++h) record.max[h] = 0, record.sum[h] = 0;
    std::memcpy(at(address), &record, sizeof record);
  }

  // If one call fails, the whole job fails.
  void clear_results(std::uint32_t status) {
    if (fields_.mode == abi::kSparfRows || fields_.mode == abi::kSparfTokens) return;
    std::memset(at(fields_.out), 0, fields_.group * out_bytes(fields_.head_dim));
    for (unsigned i = 0; i < records_of(fields_.group); ++i) {
      const std::uint64_t address = fields_.result + i * sizeof(abi::AttentionResult);
      clear_record(address, 0);
      std::memcpy(at(address), &status, sizeof status);  // the status is the first field
    }
  }

  std::uint64_t row_bytes() const { return fields_.head_dim * 2ULL; }
  std::uint64_t out_bytes(std::uint64_t dim) const { return dim * (fields_.mode == abi::kPartial ? 4 : 2); }

  EngineMemory& memory_;
  const abi::AttentionJob fields_;
  const std::uint64_t dim_;
  std::uint64_t end_;
  std::uint64_t descriptor_ = 0;
  abi::AttentionJob job_{};
};

std::uint32_t BuiltShapes::attend(EngineMemory& memory, std::uint64_t job) {
  const std::span<std::byte> used = memory.used();
  fast::Job checked;
  if (const std::uint32_t status = fast::read_job(used, job, checked); status != 0) return status;
  const abi::AttentionJob fields = read_fields(used, job);
  const bool built_heads = fields.group <= abi::kMaxGroup && built_group(fields.group) == fields.group;
  const bool chooses = fields.mode == abi::kSparfRows || fields.mode == abi::kSparfTokens;
  if (built_heads && built_head_dim(fields.head_dim) == fields.head_dim) return kernel_(used, job);
  if (chooses && !built_heads) return processor_->attention(used, job);
  const std::uint32_t status = Calls(memory, fields, used.size()).run(kernel_);
  memory.use(used.size());
  return status;
}

}  // namespace kvdrive
