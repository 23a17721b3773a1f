// SPDX-License-Identifier: Apache-2.0
// The data that Get Log Page returns.
#pragma once

#include <cstdint>

#include "commands/reply.hpp"

namespace kvdrive::nvme {

class AdminContext;

// The number of bytes that the command asks for.
std::uint64_t log_bytes(const abi::Sqe& command);

// `room`: the size of the host's buffer.
Reply log_page(AdminContext& host, const abi::Sqe& command, std::uint64_t room);

}  // namespace kvdrive::nvme
