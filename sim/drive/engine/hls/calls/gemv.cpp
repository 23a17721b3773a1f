// SPDX-License-Identifier: Apache-2.0
#include "gemv/gemv.hpp"

#include <algorithm>
#include <iterator>

#include "engine/hls/calls/beats.hpp"
#include "engine/hls/calls/calls.hpp"

namespace kvdrive::hls {
namespace {

constexpr std::size_t kLanesPerHead = abi::kBeatBytes / sizeof(std::uint32_t);  // one lane per head

using Top = int (*)(Stream<beat_t>&, Stream<beat_t>&, Stream<beat_t>&, int, int, int);

// Returns the kernel for `g` query heads, or null.
Top find_top(std::uint32_t g) {
  static constexpr Top kTops[] = {gemv_g1, gemv_g2, gemv_g4, gemv_g5, gemv_g8};
  static_assert(std::size(kTops) == std::size(abi::kGroupSizes));
  const auto* const found = std::find(std::begin(abi::kGroupSizes), std::end(abi::kGroupSizes), g);
  return found == std::end(abi::kGroupSizes) ? nullptr : kTops[found - std::begin(abi::kGroupSizes)];
}

struct Call {
  GemvMode mode;
  std::uint32_t group;
  std::uint32_t width;
  std::uint32_t tokens;
};

std::uint32_t check(const Call& call) {
  const auto plan =
      make_gemv_plan(static_cast<int>(call.mode), static_cast<int>(call.width), static_cast<int>(call.tokens));
  const std::uint32_t group = find_top(call.group) == nullptr ? abi::kBadGroup : 0U;
  return static_cast<std::uint32_t>(plan.status) | group;
}

void feed(const std::vector<beat_t>& beats, Stream<beat_t>& to) {
  for (const beat_t& beat : beats) to.write(beat);
}

void run_top(Stream<beat_t>& operands, Stream<beat_t>& beats, Stream<beat_t>& results, const Call& call, int& status) {
  status = find_top(call.group)(operands, beats, results, static_cast<int>(call.mode), static_cast<int>(call.width),
                                static_cast<int>(call.tokens));
}

void collect(Stream<beat_t>& results, std::vector<beat_t>& to) {
  for (beat_t& beat : to) beat = results.read();
}

// Runs a call that passed its checks. `results` has the length that the kernel produces.
std::uint32_t run(const Call& call, const std::vector<beat_t>& operand_beats, const std::vector<beat_t>& kv_beats,
                  std::vector<beat_t>& results) {
  Fifo<beat_t, 64> operands("operands");
  Fifo<beat_t, 64> beats("beats");
  Fifo<beat_t, 64> result_stream("results");
  int status = 0;
  DATAFLOW_BEGIN
  DATAFLOW_STAGE(feed, operand_beats, operands);
  DATAFLOW_STAGE(feed, kv_beats, beats);
  DATAFLOW_STAGE(run_top, operands, beats, result_stream, call, status);
  DATAFLOW_STAGE(collect, result_stream, results);
  DATAFLOW_END
  return static_cast<std::uint32_t>(status);
}

// Converts [g][width] binary16 to beats; each head is padded with zeros to whole beats.
std::vector<beat_t> pad_heads(const std::uint16_t* q, const Call& call) {
  std::vector<beat_t> padded;
  for (std::uint32_t h = 0; h < call.group; ++h) {
    const auto head = to_beats(q + std::size_t{h} * call.width, call.width * sizeof(std::uint16_t));
    padded.insert(padded.end(), head.begin(), head.end());
  }
  return padded;
}

// Converts beats with head h in lane h to [g][tokens]. Writes zeros for a call that found an Inf or NaN.
void scatter_dots(const std::vector<beat_t>& results, const Call& call, bool finite, std::uint32_t* dots) {
  for (std::size_t t = 0; t < call.tokens; ++t) {
    for (std::uint32_t h = 0; h < call.group; ++h) {
      dots[h * std::size_t{call.tokens} + t] = finite ? lane<32>(results[t], static_cast<int>(h)).to_uint() : 0;
    }
  }
}

std::uint32_t dot_products(const Call& call, const std::uint16_t* q, const std::uint16_t* k, std::size_t k_values,
                           std::uint32_t* dots) {
  if (const std::uint32_t refused = check(call); refused != 0) return refused;
  std::vector<beat_t> results(call.tokens);
  const std::uint32_t status = run(call, pad_heads(q, call), to_beats(k, k_values * sizeof(std::uint16_t)), results);
  scatter_dots(results, call, status == 0, dots);
  return status;
}

// Converts [g][tokens] to beats with head h in lane h.
std::vector<beat_t> gather_weights(const std::uint32_t* p, const Call& call) {
  std::vector<std::uint32_t> lanes(kLanesPerHead * call.tokens);
  for (std::size_t t = 0; t < call.tokens; ++t) {
    for (std::size_t h = 0; h < call.group; ++h) lanes[t * kLanesPerHead + h] = p[h * call.tokens + t];
  }
  return to_beats(lanes.data(), lanes.size() * sizeof(std::uint32_t));
}

}  // namespace

std::uint32_t call_gemv_rows(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t d,
                             std::uint32_t tokens, std::uint32_t* dots) {
  return dot_products({GemvMode::kRows, g, d, tokens}, q, k, std::size_t{tokens} * d, dots);
}

std::uint32_t call_gemv_columns(const std::uint16_t* q, const std::uint16_t* k, std::uint32_t g, std::uint32_t r,
                                std::uint32_t tokens, std::uint32_t* dots) {
  const std::size_t blocks = (std::size_t{tokens} + abi::kLanes - 1) / abi::kLanes;
  return dot_products({GemvMode::kColumns, g, r, tokens}, q, k, blocks * r * abi::kLanes, dots);
}

std::uint32_t call_gemv_accumulate(const std::uint32_t* p, const std::uint16_t* v, std::uint32_t g, std::uint32_t d,
                                   std::uint32_t tokens, Wide* acc) {
  const Call call = {GemvMode::kAccumulate, g, d, tokens};
  if (const std::uint32_t refused = check(call); refused != 0) return refused;
  std::vector<beat_t> results(std::size_t{g} * d * sizeof(Wide) / abi::kBeatBytes);
  const std::uint32_t status =
      run(call, gather_weights(p, call), to_beats(v, std::size_t{tokens} * d * sizeof(std::uint16_t)), results);
  std::vector<Wide> sums(std::size_t{g} * d);  // [d/32][g][32]
  if (status == 0) from_beats(results.data(), sums.data(), sums.size() * sizeof(Wide));
  for (std::size_t chunk = 0; chunk < d / abi::kLanes; ++chunk) {
    for (std::size_t h = 0; h < g; ++h) {
      std::copy_n(sums.data() + (chunk * g + h) * abi::kLanes, abi::kLanes, acc + h * d + chunk * abi::kLanes);
    }
  }
  return status;
}

}  // namespace kvdrive::hls
