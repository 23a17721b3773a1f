// SPDX-License-Identifier: Apache-2.0
// What Get Log Page returns.
#pragma once

#include <cstdint>

#include "commands/reply.hpp"

namespace kvdrive::nvme {

class AdminContext;

// Bytes that the command asks for.
std::uint64_t log_bytes(const abi::Sqe& command);

// `room`: the most that the host takes.
Reply log_page(AdminContext& host, const abi::Sqe& command, std::uint64_t room);

}  // namespace kvdrive::nvme
