// SPDX-License-Identifier: Apache-2.0
// The table of all commands.
#pragma once

#include <span>
#include <string_view>

#include "commands/command.hpp"

namespace kvdrive::nvme {

// One function per family of commands, each defined in the family's file.
std::span<const Command> kv_commands();
std::span<const Command> attention_commands();
std::span<const Command> ffn_commands();
std::span<const Command> block_commands();
std::span<const Command> value_commands();
std::span<const Command> memory_commands();
std::span<const Command> program_commands();
std::span<const Command> admin_commands();

std::span<const Command> all_commands();

// Returns null for a command that the drive does not know in that namespace. Admin commands are found by their opcode
// alone.
const Command* find_command(QueueKind queue, const abi::Sqe& command);

// The status for a command that `find_command` did not find: the namespace does not exist, the opcode belongs to
// another namespace, or the opcode is unknown.
Reply unknown_command(QueueKind queue, const abi::Sqe& command);

// Adds the field that the reply's status speaks of, if the handler named none and the row knows it.
void locate(const Command& row, Reply& reply);

// Returns direction and length of a command's data.
Transfer transfer_of(QueueKind queue, const abi::Sqe& command, const Drive& drive);

// Returns an empty name for an unknown command.
std::string_view command_name(std::uint32_t nsid, std::uint8_t opcode);

// Precondition: the namespace exists.
CommandSet command_set_of(std::uint32_t nsid);

}  // namespace kvdrive::nvme
