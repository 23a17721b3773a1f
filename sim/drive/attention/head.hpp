// SPDX-License-Identifier: Apache-2.0
// One KV head's part of an ATTN_SUBMIT, and the sizes of the data that the command carries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/runs.hpp"
#include "common/abi.hpp"
#include "kv/kv_store.hpp"

namespace kvdrive {

constexpr std::uint64_t whole_beats(std::uint64_t bytes) {
  return (bytes + abi::kBeatBytes - 1) / abi::kBeatBytes * abi::kBeatBytes;
}

// Bytes of a command's data. `half_bytes`: of a row of binary16 numbers.
std::uint64_t payload_bytes(const abi::AttnSubmit& command, std::uint32_t half_bytes);

// True if the fields are valid and fit together.
std::optional<std::uint16_t> invalid_field(const abi::AttnSubmit& command);

struct Head {
  const abi::AttnSubmit& command;
  const HeadRows& k;
  const HeadRows& v;
  std::span<const std::byte> q, valid, inline_scores, inline_v;

  // Head `index` of a command that passed its checks.
  Head(const KvStore& store, const abi::AttnSubmit& submit, std::span<const std::byte> data, std::uint32_t index);

  std::uint32_t tokens() const { return command.tokens; }
  std::uint64_t out_bytes() const;
  bool is_valid(std::uint32_t token) const {
    return valid.empty() || (std::to_integer<unsigned>(valid[token / 8]) >> token % 8 & 1) != 0;
  }
  bool any_valid(std::uint32_t first, std::uint32_t end) const;
  // Adds the valid tokens among [first, end).
  void add_valid(std::uint32_t first, std::uint32_t end, Runs& tokens) const;
  // A flag for each group of `rows` that holds tokens of the command: true if at least one of these tokens is valid.
  std::vector<bool> wanted_groups(const HeadRows& rows) const;
};

}  // namespace kvdrive
