// SPDX-License-Identifier: Apache-2.0
// A row of the drive's table of commands: how a command is found, which data it carries, and who executes it.
//
// Each family of commands is one file with handlers and rows. The dispatch, the data length, the effects log, the names
// in traces, the fuzzer and the tests all read these rows. A command without a row is unknown.
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

// The values are those of an opcode's two low bits.
enum class Direction : std::uint8_t { kNone = 0, kToController = 1, kToHost = 2 };

// How a command's data travel. `bytes` follows from the command's fields. It is absent if only the data pointer gives
// the length: an SGL's length counts then, and a PRP transport refuses the command. The host's buffer may be longer
// only for data to the host.
struct Transfer {
  Direction direction = Direction::kNone;
  std::optional<std::uint64_t> bytes = 0;
};

// What a transport passes along with a command.
struct DataBuffer {
  std::span<const std::byte> in{};  // kToController: all data
  std::uint64_t room = 0;           // kToHost: size of the host's buffer; a reply is never longer
};

// A command as it arrived. `queue` is the number of its track in the trace.
struct Request {
  const abi::Sqe& command;
  DataBuffer data{};
  std::uint32_t queue = 0;
};

// Bits of a command's entry in the effects log.
enum Effect : std::uint32_t {
  kSupported = 0x1,  // set in every row by the log page
  kChangesContents = 0x2,
  kAlone = 1 << 16,  // no other command of the namespace may run at the same time
};

// Computes the length of a command's data from its fields; empty if the drive lacks the object that determines it.
using DataLength = std::optional<std::uint64_t> (*)(const abi::Sqe& command, const Drive& drive);

// A command is executed by the drive (one command at a time, in device time), by its memory, by its programs, or by the
// controller that received it. An admin command without a reply completes later.
using DriveHandler = Reply (*)(DriveState&, const Request&);
using MemoryHandler = Reply (*)(LocalMemory&, const Request&);
using ProgramHandler = Reply (*)(Programs&, const Request&);
using AdminHandler = std::optional<Reply> (*)(AdminContext&, const Request&);
using Handler = std::variant<DriveHandler, MemoryHandler, ProgramHandler, AdminHandler>;

// The field that a status speaks of: byte `location` of the command.
struct StatusField {
  Status status;
  std::uint16_t location;
};

struct Command {
  std::uint8_t opcode = 0;
  std::uint32_t nsid = 0;  // the command's namespace; 0: an admin command
  std::string_view name;
  Direction direction = Direction::kNone;
  DataLength length = nullptr;  // null: no data
  std::uint32_t effects = 0;
  Handler handler;
  std::span<const StatusField> fields{};  // for the error log; a handler's own location counts first
  bool checks_nsid = false;               // admin command: a nonzero NSID must exist
  bool broadcast = false;                 // the command also accepts all namespaces at once (NSID FFFFFFFFh)

  QueueKind queue() const { return nsid == 0 ? QueueKind::kAdmin : QueueKind::kIo; }
};

}  // namespace kvdrive::nvme
