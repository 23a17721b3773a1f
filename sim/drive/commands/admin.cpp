// SPDX-License-Identifier: Apache-2.0
// The handlers of the admin commands.
#include "commands/admin_context.hpp"
#include "commands/features.hpp"
#include "commands/identify.hpp"
#include "commands/log_pages.hpp"
#include "commands/subsystem.hpp"
#include "commands/table.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::uint32_t kRetainEvent = 1 << 15;  // CDW10 of Get Log Page
constexpr std::uint32_t kAlways = 0;             // every host receives the event: no feature enables it
constexpr Event kSanitizeCompleted = 6 | 0x01 << 8 | kLogSanitizeStatus << 16;

using Answer = std::optional<Reply>;

std::optional<std::uint64_t> identify_bytes(const abi::Sqe&, const Drive&) { return kIdentifyBytes; }
std::optional<std::uint64_t> page_bytes(const abi::Sqe& command, const Drive&) { return log_bytes(command); }
std::optional<std::uint64_t> feature_bytes(const abi::Sqe& command, const Drive&) {
  return Features::data_bytes(command);
}
std::optional<std::uint64_t> program_range_bytes(const abi::Sqe& command, const Drive&) {
  return Programs::range_bytes(command);
}

Answer identify_it(AdminContext& host, const Request& request) {
  if (request.data.room < kIdentifyBytes) return Reply{.status = abi::kDataLength};
  return identify(host.subsystem(), host.options(), host.id(), request.command);
}

Answer get_log_page(AdminContext& host, const Request& request) {
  Reply reply = log_page(host, request.command, request.data.room);
  if (reply.status == abi::kSuccess && !(request.command.cdw10 & kRetainEvent)) {
    host.acknowledge(request.command.cdw10 & 0xff);
  }
  return reply;
}

Answer get_feature(AdminContext& host, const Request& request) {
  Reply reply = host.get_feature(request);
  if (reply.data.size() > request.data.room) return Reply{.status = abi::kDataLength};
  return reply;
}

Answer sanitize(AdminContext& host, const Request& request) {
  Reply reply = host.subsystem().sanitizer().start(request.command);
  if (reply.status == abi::kSuccess) host.raise(kSanitizeCompleted, kAlways);
  return reply;
}

constexpr Command kAdminCommands[] = {
    {.opcode = kIdentify,
     .name = "IDENTIFY",
     .direction = Direction::kToHost,
     .length = identify_bytes,
     .handler = identify_it},
    {.opcode = kGetLogPage,
     .name = "GET_LOG_PAGE",
     .direction = Direction::kToHost,
     .length = page_bytes,
     .handler = get_log_page,
     .checks_nsid = true},
    {.opcode = kGetFeatures,
     .name = "GET_FEATURES",
     .direction = Direction::kToHost,
     .length = feature_bytes,
     .handler = get_feature,
     .checks_nsid = true},
    {.opcode = kSetFeatures,
     .name = "SET_FEATURES",
     .direction = Direction::kToController,
     .length = feature_bytes,
     .handler = [](AdminContext& host, const Request& request) -> Answer { return host.set_feature(request); },
     .checks_nsid = true},
    {.opcode = kAbort,
     .name = "ABORT",
     .handler = [](AdminContext& host, const Request& request) -> Answer { return host.abort(request.command); }},
    {.opcode = kAsyncEventRequest,
     .name = "ASYNC_EVENT_REQUEST",
     .handler = [](AdminContext& host, const Request& request) { return host.wait_for_event(request.command); }},
    {.opcode = kKeepAlive,
     .name = "KEEP_ALIVE",
     .handler = [](AdminContext&, const Request&) -> Answer { return Reply{}; }},
    {.opcode = kCreateCq,
     .name = "CREATE_CQ",
     .handler = [](AdminContext& host, const Request& request) -> Answer { return host.create_cq(request.command); }},
    {.opcode = kCreateSq,
     .name = "CREATE_SQ",
     .handler = [](AdminContext& host, const Request& request) -> Answer { return host.create_sq(request.command); }},
    {.opcode = kDeleteCq,
     .name = "DELETE_CQ",
     .handler = [](AdminContext& host, const Request& request) -> Answer { return host.delete_cq(request.command); }},
    {.opcode = kDeleteSq,
     .name = "DELETE_SQ",
     .handler = [](AdminContext& host, const Request& request) -> Answer { return host.delete_sq(request.command); }},
    {.opcode = kLoadProgram,
     .name = "LOAD_PROGRAM",
     .handler = [](AdminContext& host, const Request& request) -> Answer {
       return host.subsystem().programs().load(request.command);
     }},
    {.opcode = kProgramActivation,
     .name = "PROGRAM_ACTIVATION",
     .handler = [](AdminContext& host, const Request& request) -> Answer {
       return host.subsystem().programs().activate(request.command);
     }},
    {.opcode = kMemoryRangeSet,
     .name = "MEMORY_RANGE_SET",
     .direction = Direction::kToController,
     .length = program_range_bytes,
     .handler = [](AdminContext& host, const Request& request) -> Answer {
       return host.subsystem().programs().change_ranges(request.command, request.data.in);
     }},
    {.opcode = kFormatNvm,
     .name = "FORMAT_NVM",
     .effects = kChangesContents | kAlone,
     .handler = [](AdminContext& host, const Request& request) -> Answer {
       return host.subsystem().format(request.command);
     }},
    {.opcode = kSanitize, .name = "SANITIZE", .effects = kChangesContents | kAlone, .handler = sanitize},
};

}  // namespace

std::span<const Command> admin_commands() { return kAdminCommands; }

}  // namespace kvdrive::nvme
