// SPDX-License-Identifier: Apache-2.0
#include "drive.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>
#include <variant>

#include "commands/table.hpp"
#include "kv/row_fetch.hpp"

namespace kvdrive {
namespace {

constexpr std::uint8_t kFuseMask = 0x3;

}  // namespace

std::uint16_t status_word(std::uint32_t status) {
  // These two may succeed later: a damaged payload can be sent again, and tickets become free. All other errors are
  // final.
  const bool worth_retrying = status == abi::kCrcMismatch || status == abi::kTicketsExhausted;
  const bool final = status != abi::kSuccess && !worth_retrying;
  return static_cast<std::uint16_t>(status << abi::kCqeStatusShift | (final ? abi::kCqeDoNotRetry : 0));
}

Drive::Drive(const std::filesystem::path& path, std::unique_ptr<Engine> engine, const VolumeOptions& options)
    : state_(path, std::move(engine), options) {}

nvme::Reply Drive::execute(const nvme::Request& request) {
  const std::lock_guard lock(mutex_);
  health().open();
  state_.volume.ftl().set_time(state_.now);
  state_.volume.device().advance(state_.now);
  const nvme::Command* const row = nvme::find_command(nvme::QueueKind::kIo, request.command);
  const std::uint32_t nsid = row ? row->nsid : request.command.nsid;
  nvme::Reply reply;
  std::string failure;
  try {
    reply = dispatch(row, request);
  } catch (const std::exception& error) {  // the backing file failed or memory ran out: the command changed nothing
    reply = {.status = abi::kInternalError};
    failure = error.what();
  }
  if (reply.status == abi::kInternalError) failure_ = std::move(failure);
  state_.volume.device().trace().add(TraceTrack::kQueue, request.queue, TraceWork::kCommand, state_.now, reply.done,
                                     std::uint64_t{nsid} << 8 | request.command.opcode);
  reply.done = state_.now = std::max(state_.now, reply.done);
  state_.volume.ftl().catch_up(state_.now);
  work();
  DriveStats& counters = state_.counters;
  ++counters.commands;
  counters.failed_commands += reply.status != abi::kSuccess;
  counters.host_bytes_in += sizeof request.command + request.data.in.size();
  counters.host_bytes_out += abi::kCqeBytes + reply.data.size();
  return reply;
}

nvme::Reply Drive::dispatch(const nvme::Command* row, const nvme::Request& request) {
  if (!row) return nvme::unknown_command(nvme::QueueKind::kIo, request.command);
  const auto* const handler = std::get_if<nvme::DriveHandler>(&row->handler);
  if (!handler) return {.status = abi::kInvalidOpcode};  // the subsystem handles memory and programs
  if (request.command.flags & kFuseMask) return {.status = abi::kInvalidField, .location = nvme::kInFlags};
  if (state_.volume.read_only() && (row->effects & nvme::kChangesContents)) {
    return {.status = nvme::kScNamespaceWriteProtected};
  }
  if (row->direction != nvme::Direction::kToController && !request.data.in.empty()) {
    return {.status = abi::kDataLength};
  }
  return (*handler)(state_, request);
}

// The firmware's work between commands. A failure is reported by the next commit.
void Drive::work() {
  state_.volume.ftl().set_time(state_.now);
  try {
    state_.volume.work();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no command waits for it
  }
}

Drive::Completion Drive::submit(SqeView sqe, std::span<const std::byte> data) {
  abi::Sqe command;
  std::memcpy(&command, sqe.data(), sizeof command);
  nvme::Reply reply = execute({.command = command, .data = {.in = data, .room = UINT64_MAX}});
  const abi::Cqe cqe{
      .result = reply.result, .sq_head = 0, .sq_id = 0, .cid = command.cid, .status = status_word(reply.status)};
  Completion completion{{}, std::move(reply.data), reply.done};
  std::memcpy(completion.cqe.data(), &cqe, sizeof cqe);
  return completion;
}

abi::NvmeStatus Drive::flush() {
  abi::Sqe command{};
  command.opcode = abi::kFlush;
  command.nsid = abi::kNvm;
  return execute({.command = command}).status == abi::kSuccess ? abi::kSuccess : abi::kInternalError;
}

void Drive::abandon(std::uint16_t controller) {
  const std::lock_guard lock(mutex_);
  state_.tickets.abandon(controller);
  state_.uploads.abandon(controller);
}

void Drive::activate_program(std::uint32_t program, bool active) {
  const std::uint32_t bit = 1u << program;
  if (active) {
    state_.inactive_programs &= ~bit;
  } else {
    state_.inactive_programs |= bit;
  }
}

std::optional<std::uint64_t> Drive::payload_bytes(const abi::AttnSubmit& command) const {
  const std::lock_guard lock(mutex_);
  return state_.attention.payload_bytes(command);
}

std::uint32_t Drive::run_job(std::span<std::byte> memory, std::uint64_t job, std::uint32_t queue) {
  const std::lock_guard lock(mutex_);
  const auto [status, done] = state_.attention.run_in(memory, job, state_.now);
  state_.volume.device().trace().add(TraceTrack::kQueue, queue, TraceWork::kCommand, state_.now, done,
                                     abi::kCp << 8 | nvme::kExecuteProgram);
  state_.now = std::max(state_.now, done);
  return status;
}

void Drive::forget_sessions_and_blocks() {
  for (const std::uint32_t session : state_.volume.store().sessions()) {
    abi::SessionTrim everything{};
    everything.session = session;
    state_.volume.store().trim(everything);
  }
  state_.volume.blocks().deallocate(0, state_.volume.blocks().size());
  state_.tickets.clear();
}

void Drive::forget_values() {
  state_.uploads.clear();
  state_.volume.values().clear();
}

abi::NvmeStatus Drive::format(std::uint32_t nsid) {
  const std::lock_guard lock(mutex_);
  if (state_.volume.read_only()) return abi::kInternalError;
  try {
    if (nsid != nvme::kNsidValues) forget_sessions_and_blocks();
    if (nsid != abi::kNvm) forget_values();
    state_.volume.commit();
  } catch (const std::exception&) {
    return abi::kInternalError;
  }
  return abi::kSuccess;
}

abi::NvmeStatus Drive::sanitize() {
  const std::lock_guard lock(mutex_);
  if (state_.volume.read_only()) return abi::kInternalError;
  state_.volume.ftl().set_time(state_.now);
  try {
    forget_sessions_and_blocks();
    forget_values();
    state_.volume.commit();
    state_.volume.sanitize();
  } catch (const std::exception&) {
    return abi::kInternalError;
  }
  return abi::kSuccess;
}

std::string Drive::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::uint64_t Drive::blocks_used() const {
  const std::lock_guard lock(mutex_);
  return state_.volume.blocks().used();
}

bool Drive::strikes(FaultKind kind) {
  if (!faults_armed_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  return state_.volume.faults().strikes(kind);
}

DriveStats Drive::stats() const {
  const std::lock_guard lock(mutex_);
  DriveStats stats = state_.counters;
  stats.pages_written = state_.volume.ftl().counters().groups_written;
  stats.pages_read = state_.volume.ftl().counters().groups_read;
  stats.staged_bytes_read = state_.attention.staged_bytes_read();
  stats.attention_jobs = state_.attention.jobs();
  return stats;
}

FlashStats Drive::flash_stats() const {
  const std::lock_guard lock(mutex_);
  const Ftl& ftl = state_.volume.ftl();
  FlashStats stats{.ftl = ftl.counters(),
                   .filter = state_.attention.filtered(),
                   .wear = ftl.wear(),
                   .ecc = state_.volume.device().ecc(),
                   .device_ns = state_.now,
                   .engine_cycles = state_.attention.engine_cycles(),
                   .memory_bytes = state_.volume.device().memory_bytes(),
                   .host_link_busy_ns = state_.volume.device().host_link_busy_ns(),
                   .journal_bytes = state_.volume.journal_bytes(),
                   .file_writes = state_.volume.file_writes(),
                   .pages_started = ftl.pages_started(),
                   .groups_live = ftl.live(),
                   .groups_available = ftl.available(),
                   .groups_queued = ftl.queued(),
                   .staged_bytes = state_.volume.store().staged_bytes(),
                   .metadata_bytes = ftl.metadata_bytes(),
                   .values = state_.volume.values().values().size(),
                   .value_bytes = state_.volume.values().stored_bytes(),
                   .run_groups = state_.volume.store().run_groups(),
                   .hot = ftl.hot().counters(),
                   .index = ftl.kept_index().counters(),
                   .hot_bytes = ftl.hot().bytes(),
                   .index_bytes = ftl.kept_index().bytes(),
                   .limits = state_.volume.limits(),
                   .channels = {}};
  for (std::uint32_t i = 0; i < state_.volume.superblock().geometry.channels; ++i) {
    stats.channels.push_back(state_.volume.device().channel(i));
  }
  return stats;
}

ReadStats Drive::read_stats() const {
  const std::lock_guard lock(mutex_);
  const DirectReads* reads = state_.volume.direct_reads();
  if (reads == nullptr) return {};
  const DenseStreams& streams = state_.attention.streams();
  return {reads->counters(), reads->around_cache(), reads->asynchronous(), streams.early(), streams.unused()};
}

std::vector<std::uint32_t> Drive::sessions() const {
  const std::lock_guard lock(mutex_);
  return state_.volume.store().sessions();
}

std::vector<HeadSummary> Drive::heads(std::uint32_t session) const {
  const std::lock_guard lock(mutex_);
  std::vector<HeadSummary> found;
  for (const HeadRows* rows : state_.volume.store().heads(session)) {
    const HeadRows::Name& name = rows->name();
    HeadSummary head{name.layer, name.head, name.kind, rows->tokens(), rows->layout()};
    if (const KeyIndex* index = rows->index()) {
      head.indexed = index->tokens();
      head.index_exponent = index->exponent();
      head.index_saturated = index->saturated();
    }
    found.push_back(head);
  }
  return found;
}

std::vector<std::byte> Drive::rows(std::uint32_t session, std::uint32_t layer, std::uint32_t head, abi::KvKind kind) {
  const std::lock_guard lock(mutex_);
  const HeadRows* found = state_.volume.store().find(session, layer, head, kind);
  if (!found) return {};
  std::vector<std::byte> bytes(std::size_t{found->tokens()} * found->row_bytes());
  RowFetch fetch;
  fetch.add(*found, 0, found->tokens(), bytes.data());
  if (!fetch.run(state_.volume.ftl(), state_.now, Sink::kFirmware).whole)
    throw std::runtime_error("a flash page lost its contents");
  return bytes;
}

void Drive::inject(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  state_.volume.inject(fault);
  faults_armed_ = true;
}

void Drive::keep_trace(std::size_t events) {
  const std::lock_guard lock(mutex_);
  state_.volume.device().trace().keep(events);
}

std::size_t Drive::write_trace(std::ostream& out) {
  const std::lock_guard lock(mutex_);
  return state_.volume.device().trace().write(out, nvme::command_name);
}

std::vector<std::string> Drive::check() {
  const std::lock_guard lock(mutex_);
  return state_.volume.check();
}

}  // namespace kvdrive
