// SPDX-License-Identifier: Apache-2.0
// What Identify returns.
#pragma once

#include "commands/admin_context.hpp"
#include "commands/reply.hpp"

namespace kvdrive::nvme {

class Subsystem;

Reply identify(Subsystem& subsystem, const ControllerOptions& options, std::uint16_t controller_id,
               const abi::Sqe& command);

}  // namespace kvdrive::nvme
