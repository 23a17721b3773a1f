// SPDX-License-Identifier: Apache-2.0
#include "feed_forward/ffn_call.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#include "attention/head.hpp"
#include "common/abi.hpp"

namespace kvdrive {
namespace {

constexpr std::uint64_t kNumberBytes = 2;
constexpr std::uint64_t kMatrixAlignment = 64;

bool listed(const nvme::FfnSubmit& command) { return (command.layout & nvme::kFfnListed) != 0; }
bool given(const nvme::FfnSubmit& command) { return command.activation == nvme::kFfnGiven; }
std::uint32_t layout_of(const nvme::FfnSubmit& command) {
  return command.layout & ~static_cast<std::uint32_t>(nvme::kFfnListed);
}

std::uint64_t list_numbers(const nvme::FfnSubmit& command) { return listed(command) ? command.neurons : 0; }
std::uint64_t activation_numbers(const nvme::FfnSubmit& command) {
  return given(command) ? std::uint64_t{command.tokens} * command.neurons : 0;
}
std::uint64_t x_numbers(const nvme::FfnSubmit& command) {
  return layout_of(command) == nvme::kFfnDown ? 0 : std::uint64_t{command.tokens} * command.hidden;
}

std::vector<std::uint16_t> take(std::span<const std::byte>& data, std::uint64_t numbers) {
  std::vector<std::uint16_t> taken(numbers);
  if (numbers > 0) std::memcpy(taken.data(), data.data(), numbers * kNumberBytes);
  data = data.subspan(std::min<std::uint64_t>(whole_beats(numbers * kNumberBytes), data.size()));
  return taken;
}

Key key_of(const nvme::FfnSubmit& command) {
  Key key{.bytes = {}, .length = command.key_bytes};
  std::ranges::copy(command.key_low, key.bytes.begin());
  std::ranges::copy(command.key_high, key.bytes.begin() + sizeof command.key_low);
  std::fill(key.bytes.begin() + key.length, key.bytes.end(), std::uint8_t{0});
  return key;
}

}  // namespace

std::optional<std::uint16_t> invalid_field(const nvme::FfnSubmit& command) {
  const std::uint32_t layout = layout_of(command);
  const bool gated = layout == nvme::kFfnGateUpDown || layout == nvme::kFfnExpert;
  if (command.hidden == 0 || command.hidden > nvme::kMaxFfnHidden || command.hidden % abi::kCommandHeadDimStep != 0) {
    return offsetof(nvme::FfnSubmit, hidden);
  }
  if (command.neurons == 0) return offsetof(nvme::FfnSubmit, neurons);
  if (layout < nvme::kFfnDown || layout > nvme::kFfnExpert || (listed(command) && layout == nvme::kFfnExpert)) {
    return offsetof(nvme::FfnSubmit, layout);
  }
  if (command.activation > nvme::kFfnSilu || given(command) == gated) return offsetof(nvme::FfnSubmit, activation);
  if (command.tokens == 0 || command.tokens > nvme::kMaxFfnTokens) return offsetof(nvme::FfnSubmit, tokens);
  if (command.key_bytes > nvme::kMaxKeyBytes) return offsetof(nvme::FfnSubmit, key_bytes);
  return std::nullopt;
}

std::uint64_t payload_bytes(const nvme::FfnSubmit& command) {
  return whole_beats(list_numbers(command) * kNumberBytes) + whole_beats(activation_numbers(command) * kNumberBytes) +
         x_numbers(command) * kNumberBytes;
}

FfnCall::FfnCall(const nvme::FfnSubmit& command, std::span<const std::byte> data)
    : key_(key_of(command)),
      offset_(command.offset),
      layout_(layout_of(command)),
      list_(take(data, list_numbers(command))),
      activations_(take(data, activation_numbers(command))),
      x_(take(data, x_numbers(command))) {
  block_.activation = static_cast<nvme::FfnActivation>(command.activation);
  block_.matrices = std::min<std::uint32_t>(layout_, nvme::kFfnGateUpDown);
  block_.hidden = command.hidden;
  block_.neurons = command.neurons;
  block_.tokens = command.tokens;
  block_.x = x_.empty() ? nullptr : x_.data();
  block_.activations = activations_.empty() ? nullptr : activations_.data();
  block_.activation_stride = command.neurons;
}

bool FfnCall::ascends() const { return std::ranges::adjacent_find(list_, std::greater_equal<>()) == list_.end(); }

std::uint64_t FfnCall::down_at() const {
  const std::uint64_t matrix = kNumberBytes * block_.neurons * block_.hidden;
  return offset_ + (2 * matrix + kMatrixAlignment - 1) / kMatrixAlignment * kMatrixAlignment;
}

std::uint64_t FfnCall::end() const {
  if (expert()) return down_at() + kNumberBytes * block_.neurons * block_.hidden;
  return rows_at(block_.neurons - 1) + neuron_bytes();
}

}  // namespace kvdrive
