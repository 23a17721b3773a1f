// SPDX-License-Identifier: Apache-2.0
// The table of all commands.
#pragma once

#include <span>
#include <string_view>

#include "commands/command.hpp"

namespace kvdrive::nvme {

// The families, one file each.
std::span<const Command> kv_commands();
std::span<const Command> attention_commands();
std::span<const Command> block_commands();
std::span<const Command> memory_commands();
std::span<const Command> program_commands();
std::span<const Command> admin_commands();

std::span<const Command> all_commands();

// Null for a command that the drive does not know in that namespace. Admin commands are found by their opcode alone.
const Command* find_command(QueueKind queue, const abi::Sqe& command);

// Why `find_command` found nothing: the namespace does not exist or is another command's, or the opcode is unknown.
Reply unknown_command(QueueKind queue, const abi::Sqe& command);

// Direction and length of a command's data.
Transfer transfer_of(QueueKind queue, const abi::Sqe& command, const Drive& drive);

// Empty for none.
std::string_view command_name(std::uint32_t nsid, std::uint8_t opcode);

// The command set of an existing namespace.
CommandSet command_set_of(std::uint32_t nsid);

}  // namespace kvdrive::nvme
