// SPDX-License-Identifier: Apache-2.0
// The fields of the KV commands that can be judged without the drive's state.
#pragma once

#include <cstdint>
#include <optional>

#include "commands/wire.hpp"
#include "common/abi.hpp"
#include "kv/head_rows.hpp"

namespace kvdrive {

// How the append's rows are stored.
inline RowLayout layout_of(const abi::KvAppend& command) {
  return {command.row_bytes, static_cast<RowFormat>(command.type), (command.options & abi::kAppendSparse) != 0,
          (command.options & abi::kAppendGroups) != 0};
}

// Return the byte of the command's first field that no drive accepts; empty if there is none.
std::optional<std::uint16_t> invalid_field(const abi::KvAppend& command);
std::optional<std::uint16_t> invalid_field(const abi::SessionTrim& command);
std::optional<std::uint16_t> invalid_field(const abi::SessionFork& command);
std::optional<std::uint16_t> invalid_field(const nvme::SessionRemove& command);

}  // namespace kvdrive
