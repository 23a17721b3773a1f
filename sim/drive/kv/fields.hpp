// SPDX-License-Identifier: Apache-2.0
// The fields of the KV commands that can be judged without the drive's state.
#pragma once

#include <cstdint>
#include <optional>

#include "commands/wire.hpp"
#include "common/abi.hpp"

namespace kvdrive {

// True if the append also stores the second copy of K that SparF reads.
inline bool sparse(const abi::KvAppend& command) { return (command.options & abi::kAppendSparse) != 0; }

// Return the byte of the command's first field that no drive accepts; empty if there is none.
std::optional<std::uint16_t> invalid_field(const abi::KvAppend& command);
std::optional<std::uint16_t> invalid_field(const abi::SessionTrim& command);
std::optional<std::uint16_t> invalid_field(const abi::SessionFork& command);
std::optional<std::uint16_t> invalid_field(const nvme::SessionRemove& command);

}  // namespace kvdrive
