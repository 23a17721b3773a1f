// SPDX-License-Identifier: Apache-2.0
// An FFN_SUBMIT: the places of its data, and of the weights in the value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "commands/wire.hpp"
#include "engine/ffn.hpp"
#include "values/value_store.hpp"

namespace kvdrive {

// Returns the byte of the first field whose value is not allowed, whatever the data and the drive hold.
std::optional<std::uint16_t> invalid_field(const nvme::FfnSubmit& command);

// Length of the command's data. Precondition: its fields are valid.
std::uint64_t payload_bytes(const nvme::FfnSubmit& command);

class FfnCall {
 public:
  // Precondition: the fields are valid, and the data have the length that they say.
  FfnCall(const nvme::FfnSubmit& command, std::span<const std::byte> data);

  const Key& key() const { return key_; }
  // True unless the command brings a list that does not ascend.
  bool ascends() const;
  // The byte of the value at which the weights of the last neuron end.
  std::uint64_t end() const;
  // All numbers of the call except the rows.
  const FfnBlock& block() const { return block_; }
  bool expert() const { return layout_ == nvme::kFfnExpert; }

  // For layouts of rows: the first byte of the rows of neuron `i` of the call.
  std::uint64_t rows_at(std::size_t i) const { return offset_ + number(i) * neuron_bytes(); }
  std::uint64_t neuron_bytes() const { return std::uint64_t{2} * block_.matrices * block_.hidden; }

  // For experts: the first byte of gate, behind which up lies, and that of down.
  std::uint64_t offset() const { return offset_; }
  std::uint64_t down_at() const;

 private:
  std::size_t number(std::size_t i) const { return list_.empty() ? i : list_[i]; }

  Key key_;
  std::uint64_t offset_;
  std::uint32_t layout_;
  std::vector<std::uint16_t> list_, activations_, x_;
  FfnBlock block_;
};

}  // namespace kvdrive
