// SPDX-License-Identifier: Apache-2.0
// Namespace 3: feed-forward parts whose weights are values of namespace 4. ATTN_FETCH returns the result.
#include <bit>
#include <cstddef>
#include <optional>

#include "commands/drive_state.hpp"
#include "commands/engine_job.hpp"
#include "commands/table.hpp"
#include "crc32c.hpp"

namespace kvdrive::nvme {
namespace {

std::optional<std::uint64_t> submit_neurons_bytes(const abi::Sqe& command, const Drive&) {
  return payload_bytes(std::bit_cast<FfnSubmit>(command));
}

Reply submit_neurons(DriveState& drive, const Request& request) {
  const auto command = std::bit_cast<FfnSubmit>(request.command);
  if (drive.inactive_programs >> kProgramFfn & 1) return {.status = kScProgramNotActivated};
  if (const auto at = invalid_field(command)) return {.status = abi::kInvalidField, .location = *at};
  if (command.key_bytes == 0) return {.status = kScInvalidKeySize};
  if (request.data.in.size() != payload_bytes(command)) return {.status = abi::kDataLength};
  if (crc32c(request.data.in) != command.crc32c) return {.status = abi::kCrcMismatch};
  const FfnCall call(command, request.data.in);
  if (!call.ascends()) return {.status = abi::kInvalidField, .location = offsetof(FfnSubmit, layout)};
  const Value* const value = drive.volume.values().find(call.key());
  if (value == nullptr) return {.status = kScKeyDoesNotExist};
  if (call.end() > value->bytes) return {.status = kScInvalidValueSize};
  return run_and_keep(drive, request, [&](Ns arrival) { return drive.ffn.run(call, arrival); });
}

constexpr StatusField kFfnFields[] = {
    {kScProgramNotActivated, offsetof(FfnSubmit, opcode)}, {kScInvalidKeySize, offsetof(FfnSubmit, key_bytes)},
    {kScKeyDoesNotExist, offsetof(FfnSubmit, key_low)},    {kScInvalidValueSize, offsetof(FfnSubmit, offset)},
    {abi::kCrcMismatch, offsetof(FfnSubmit, crc32c)},
};

constexpr Command kFfnCommands[] = {
    {.opcode = abi::kFfnSubmit,
     .nsid = abi::kCp,
     .name = "FFN_SUBMIT",
     .direction = Direction::kToController,
     .length = submit_neurons_bytes,
     .handler = submit_neurons,
     .fields = kFfnFields},
};

}  // namespace

std::span<const Command> ffn_commands() { return kFfnCommands; }

}  // namespace kvdrive::nvme
