// SPDX-License-Identifier: Apache-2.0
#include "commands/table.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

namespace kvdrive::nvme {
namespace {

class Table {
 public:
  Table() {
    for (const auto family : {kv_commands(), attention_commands(), ffn_commands(), block_commands(), value_commands(),
                              memory_commands(), program_commands(), admin_commands()}) {
      rows_.insert(rows_.end(), family.begin(), family.end());
    }
    for (const Command& row : rows_) {
      const Command*& place = index_.at(row.nsid).at(row.opcode);
      if (place) throw std::logic_error("two commands have one opcode");
      place = &row;
    }
  }

  std::span<const Command> rows() const { return rows_; }
  const Command* find(std::uint32_t nsid, std::uint8_t opcode) const {
    return nsid < index_.size() ? index_[nsid][opcode] : nullptr;
  }

 private:
  std::vector<Command> rows_;
  std::array<std::array<const Command*, 256>, kMaxNsid + 1> index_{};  // by namespace; 0 holds the admin commands
};

const Table& table() {
  static const Table kTable;
  return kTable;
}

}  // namespace

std::span<const Command> all_commands() { return table().rows(); }

const Command* find_command(QueueKind queue, const abi::Sqe& command) {
  if (queue == QueueKind::kAdmin) return table().find(0, command.opcode);
  if (command.nsid == kNsidAll) {
    const auto broadcast = [&](const Command& row) { return row.broadcast && row.opcode == command.opcode; };
    const auto found = std::ranges::find_if(all_commands(), broadcast);
    return found == all_commands().end() ? nullptr : &*found;
  }
  return command.nsid == 0 ? nullptr : table().find(command.nsid, command.opcode);
}

Reply unknown_command(QueueKind queue, const abi::Sqe& command) {
  Reply opcode{.status = abi::kInvalidOpcode, .location = kInOpcode};
  Reply nsid{.status = abi::kInvalidNamespace, .location = kInNsid};
  if (queue == QueueKind::kAdmin) return opcode;
  if (command.nsid == 0 || command.nsid > kMaxNsid) return nsid;
  const auto same = [&](const Command& row) { return row.nsid != 0 && row.opcode == command.opcode; };
  return std::ranges::any_of(all_commands(), same) ? nsid : opcode;
}

void locate(const Command& row, Reply& reply) {
  if (reply.status == abi::kSuccess || reply.location != kNoLocation) return;
  const auto found = std::ranges::find(row.fields, reply.status, &StatusField::status);
  if (found != row.fields.end()) reply.location = found->location;
}

Transfer transfer_of(QueueKind queue, const abi::Sqe& command, const Drive& drive) {
  const Command* const row = find_command(queue, command);
  if (!row) {
    const auto direction = static_cast<Direction>(command.opcode & 3);
    return direction == Direction::kNone ? Transfer{} : Transfer{direction, std::nullopt};
  }
  if (!row->length) return {};
  const auto bytes = row->length(command, drive);
  if (queue == QueueKind::kAdmin && bytes == 0) return {};  // the command's value is in the completion
  return {row->direction, bytes};
}

std::string_view command_name(std::uint32_t nsid, std::uint8_t opcode) {
  const Command* const row = table().find(nsid, opcode);
  return row ? row->name : std::string_view();
}

CommandSet command_set_of(std::uint32_t nsid) {
  switch (nsid) {
    case abi::kNvm:
      return kCsiNvm;
    case kNsidMemory:
      return kCsiMemory;
    case kNsidValues:
      return kCsiKeyValue;
    default:
      return kCsiPrograms;
  }
}

}  // namespace kvdrive::nvme
