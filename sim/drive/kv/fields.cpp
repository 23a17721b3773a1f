// SPDX-License-Identifier: Apache-2.0
#include "kv/fields.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace kvdrive {
namespace {

bool all_zero(std::span<const std::uint32_t> reserved) {
  return std::ranges::all_of(reserved, [](std::uint32_t word) { return word == 0; });
}

}  // namespace

std::optional<std::uint16_t> invalid_field(const abi::KvAppend& command) {
  constexpr std::uint32_t kOptions = abi::kAppendFua | abi::kAppendSparse | abi::kAppendGroups;
  if (command.heads == 0 || command.head + command.heads > 256) return offsetof(abi::KvAppend, heads);
  if (command.tokens == 0 || std::uint64_t{command.first_token} + command.tokens > abi::kMaxTokens) {
    return offsetof(abi::KvAppend, tokens);
  }
  if (command.kind > abi::kValues) return offsetof(abi::KvAppend, kind);
  if (command.type > nvme::kFp8) return offsetof(abi::KvAppend, type);
  if (!layout_of(command).possible()) return offsetof(abi::KvAppend, row_bytes);
  if ((command.options & ~kOptions) != 0) return offsetof(abi::KvAppend, options);
  return std::nullopt;
}

std::optional<std::uint16_t> invalid_field(const abi::SessionTrim& command) {
  if (command.reserved0 != 0) return offsetof(abi::SessionTrim, reserved0);
  if (!all_zero(command.reserved1)) return offsetof(abi::SessionTrim, reserved1);
  return std::nullopt;
}

std::optional<std::uint16_t> invalid_field(const abi::SessionFork& command) {
  if (command.target == command.session) return offsetof(abi::SessionFork, target);
  if (command.reserved0 != 0) return offsetof(abi::SessionFork, reserved0);
  if (!all_zero(command.reserved1)) return offsetof(abi::SessionFork, reserved1);
  return std::nullopt;
}

std::optional<std::uint16_t> invalid_field(const nvme::SessionRemove& command) {
  if (command.tokens == 0) return offsetof(nvme::SessionRemove, tokens);
  if (command.reserved0 != 0) return offsetof(nvme::SessionRemove, reserved0);
  if (!all_zero(command.reserved1)) return offsetof(nvme::SessionRemove, reserved1);
  return std::nullopt;
}

}  // namespace kvdrive
