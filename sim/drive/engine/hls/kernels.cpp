// SPDX-License-Identifier: Apache-2.0
#include "engine/hls/kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string>

#include "common/abi.hpp"
#include "engine/hls/calls/calls.hpp"
#include "engine/hls/library.hpp"
#include "engine/shapes.hpp"

namespace kvdrive::hls {
namespace {

// A top of attention or group_choice: ports to one memory of `memory_beats` beats, and the byte address of a job. The
// kernels address a memory of beats, the drive a memory of bytes. A beat consists of its 64 bytes in order.
using Top = std::uint32_t(const void*, const void*, void*, std::uint64_t job, std::uint64_t memory_beats);
using CodesTop = std::uint32_t(const void*, const void*, const void*, void*, std::uint64_t job,
                               std::uint64_t memory_beats);

template <typename Function>
Function* find(const std::string& kernel, const char* name) {
  return reinterpret_cast<Function*>(find_function(kernel, name));
}

// A top with a shared object of its own.
template <typename Function>
Function* find_top(const std::string& top) {
  return find<Function>(top, top.c_str());
}

// "_g4" for 4 heads. Any kernel refuses a group that it is not built for.
std::string suffix_of(unsigned group) {
  const bool built = std::ranges::count(abi::kGroupSizes, group) != 0;
  return "_g" + std::to_string(built ? group : 1);
}

// The fields of a job; zeros if the memory holds no whole descriptor there.
template <typename Job>
Job fields_at(std::span<const std::byte> memory, std::uint64_t job) {
  Job fields{};
  if (memory.size() >= sizeof fields && job <= memory.size() - sizeof fields) {
    std::memcpy(&fields, memory.data() + job, sizeof fields);
  }
  return fields;
}

std::string attention_top(unsigned group) { return "attention" + suffix_of(group); }

}  // namespace

void prepare_attention(unsigned group) {
  for (unsigned call = 0; call < kernel_calls(group); ++call) {
    find_top<Top>(attention_top(built_group(kernel_call(group, call).heads)));
  }
}

std::uint32_t attention(std::span<std::byte> memory, std::uint64_t job) {
  auto* const top = find_top<Top>(attention_top(fields_at<abi::AttentionJob>(memory, job).group));
  return top(memory.data(), memory.data(), memory.data(), job, memory.size() / abi::kBeatBytes);
}

std::uint32_t attention_codes(std::span<std::byte> memory, std::uint64_t job) {
  const auto fields = fields_at<abi::AttentionJob>(memory, job);
  const std::string name = fields.r == 4 ? "attention_codes4" : "attention_codes";
  auto* const top = find_top<CodesTop>(name + (fields.group == 4 ? "_g4" : "_g1"));
  return top(memory.data(), memory.data(), memory.data(), memory.data(), job, memory.size() / abi::kBeatBytes);
}

bool chooses_groups(std::span<const std::byte> memory, std::uint64_t job) {
  const auto fields = fields_at<abi::GroupChoiceJob>(memory, job);
  return std::ranges::count(abi::kGroupSizes, fields.group) != 0 &&
         std::ranges::count(abi::kChoiceHeadDims, fields.head_dim) != 0;
}

std::uint32_t group_choice(std::span<std::byte> memory, std::uint64_t job) {
  auto* const top = find_top<Top>("group_choice" + suffix_of(fields_at<abi::GroupChoiceJob>(memory, job).group));
  return top(memory.data(), memory.data(), memory.data(), job, memory.size() / abi::kBeatBytes);
}

std::uint32_t ffn(const FfnBlock& block, FfnSum* sums) {
  return find<decltype(call_ffn)>("ffn", "call_ffn")(block, sums);
}

ArgtopkResult argtopk(const void* keys, std::uint32_t n, std::uint32_t k, abi::KeyType type) {
  ArgtopkResult result;
  find<decltype(call_argtopk)>("argtopk", "call_argtopk")(keys, n, k, type, result);
  return result;
}

FilterResult page_filter(std::span<const std::uint8_t> pages, std::span<const std::uint8_t> bitmap, std::uint32_t rows,
                         std::uint32_t row_bytes, std::uint32_t page_bytes) {
  FilterResult result;
  find<decltype(call_page_filter)>("page_filter", "call_page_filter")(pages, bitmap, rows, row_bytes, page_bytes,
                                                                      result);
  return result;
}

std::uint32_t gemv_rows(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t d,
                        std::uint32_t tokens, std::uint32_t* dots) {
  return find<decltype(call_gemv_rows)>("gemv", "call_gemv_rows")(q, k, g, d, tokens, dots);
}

std::uint32_t gemv_columns(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t r,
                           std::uint32_t tokens, std::uint32_t* dots) {
  return find<decltype(call_gemv_columns)>("gemv", "call_gemv_columns")(q, k, g, r, tokens, dots);
}

std::uint32_t gemv_accumulate(const std::uint32_t* p, const std::uint16_t* v, std::uint32_t g, std::uint32_t d,
                              std::uint32_t tokens, Wide* acc) {
  return find<decltype(call_gemv_accumulate)>("gemv", "call_gemv_accumulate")(p, v, g, d, tokens, acc);
}

SoftmaxResult softmax(std::span<const std::int32_t> dense, const std::uint8_t* valid,
                      std::span<const std::int32_t> tail) {
  SoftmaxResult result;
  find<decltype(call_softmax)>("softmax", "call_softmax")(dense, valid, tail, result);
  return result;
}

}  // namespace kvdrive::hls
