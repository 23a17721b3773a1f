// SPDX-License-Identifier: Apache-2.0
// A row of the drive's table of commands: how a command is found, what data it carries, who executes it.
//
// Each family of commands is one file with its handlers and its rows. The dispatch, the length of the data, the effects
// log, the names in traces, the fuzzer and the tests read the rows; a command is known where it has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "commands/reply.hpp"
#include "commands/wire.hpp"
#include "common/abi.hpp"

namespace kvdrive {
class Drive;
struct DriveState;
}  // namespace kvdrive

namespace kvdrive::nvme {

class AdminContext;
class LocalMemory;
class Programs;

enum class QueueKind : std::uint8_t { kAdmin, kIo };

// As in the low bits of an opcode.
enum class Direction : std::uint8_t { kNone = 0, kToController = 1, kToHost = 2 };

// How a command's data travel. `bytes` follows from its fields; absent where only the data pointer says it (then an
// SGL's length counts; a PRP transport refuses the command). A longer host buffer is fine for data to the host only.
struct Transfer {
  Direction direction = Direction::kNone;
  std::optional<std::uint64_t> bytes = 0;
};

// What a transport hands over with a command.
struct DataBuffer {
  std::span<const std::byte> in{};  // kToController: all of it
  std::uint64_t room = 0;           // kToHost: size of the host's buffer; a reply is never longer
};

// A command as it arrived. `queue`: the track on which it is traced.
struct Request {
  const abi::Sqe& command;
  DataBuffer data{};
  std::uint32_t queue = 0;
};

// Bits of a command's entry in the effects log.
enum Effect : std::uint32_t {
  kSupported = 0x1,  // every row; the log adds it
  kChangesContents = 0x2,
  kAlone = 1 << 16,  // no other command of the namespace at the same time
};

// Length of a command's data by its fields; nothing where the drive lacks what it follows from.
using DataLength = std::optional<std::uint64_t> (*)(const abi::Sqe& command, const Drive& drive);

// What executes a command: the drive, one command at a time and in device time; its memory; its programs; or the
// controller that it came through. An admin command without a reply completes later.
using DriveHandler = Reply (*)(DriveState&, const Request&);
using MemoryHandler = Reply (*)(LocalMemory&, const Request&);
using ProgramHandler = Reply (*)(Programs&, const Request&);
using AdminHandler = std::optional<Reply> (*)(AdminContext&, const Request&);
using Handler = std::variant<DriveHandler, MemoryHandler, ProgramHandler, AdminHandler>;

struct Command {
  std::uint8_t opcode = 0;
  std::uint32_t nsid = 0;  // the namespace whose command it is; 0: an admin command
  std::string_view name;
  Direction direction = Direction::kNone;
  DataLength length = nullptr;  // null: no data
  std::uint32_t effects = 0;
  Handler handler;
  bool checks_nsid = false;  // an admin command whose NSID, where it has one, must exist
  bool broadcast = false;    // also for all namespaces at once (NSID FFFFFFFFh)

  QueueKind queue() const { return nsid == 0 ? QueueKind::kAdmin : QueueKind::kIo; }
};

}  // namespace kvdrive::nvme
