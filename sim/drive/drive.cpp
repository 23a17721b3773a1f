// SPDX-License-Identifier: Apache-2.0
#include "drive.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#include "commands/wire.hpp"
#include "crc32c.hpp"
#include "kv/row_fetch.hpp"

namespace kvdrive {
namespace {

constexpr std::uint8_t kFuseMask = 0x3;

abi::Namespace namespace_of(std::uint8_t opcode) {
  return opcode == abi::kAttnSubmit || opcode == abi::kAttnFetch ? abi::kCp : abi::kNvm;
}

bool known(std::uint8_t opcode) {
  return opcode == abi::kFlush || opcode == abi::kKvAppend || opcode == abi::kSessionTrim ||
         opcode == abi::kAttnSubmit || opcode == abi::kAttnFetch || opcode == abi::kSessionFork ||
         opcode == nvme::kSessionErase;
}

bool of_blocks(std::uint8_t opcode) {
  return opcode == nvme::kNvmRead || opcode == nvme::kNvmWrite || opcode == nvme::kNvmWriteZeroes ||
         opcode == nvme::kNvmDatasetManagement;
}

constexpr std::uint32_t kForceUnitAccess = 1u << 30;  // CDW12 of block commands
constexpr std::uint32_t kDeallocate = 1u << 2;        // CDW11 of dataset management
constexpr Ns kEngineTimeout = 1'000'000'000;

}  // namespace

std::uint16_t status_word(std::uint32_t status) {
  // A damaged payload can be sent again and a full ticket table empties; everything else fails again.
  const bool worth_retrying = status == abi::kCrcMismatch || status == abi::kTicketsExhausted;
  const bool final = status != abi::kSuccess && !worth_retrying;
  return static_cast<std::uint16_t>(status << abi::kCqeStatusShift | (final ? abi::kCqeDoNotRetry : 0));
}

Drive::Drive(const std::filesystem::path& path, std::unique_ptr<Engine> engine, const VolumeOptions& options)
    : volume_(path, options), engine_(std::move(engine)) {}

Drive::Reply Drive::execute(const abi::Sqe& command, std::span<const std::byte> data, std::uint64_t room,
                            std::uint32_t queue) {
  const std::lock_guard lock(mutex_);
  volume_.ftl().set_time(now_);
  volume_.device().advance(now_);
  Reply reply;
  try {
    reply = dispatch(command, data, room);
  } catch (const std::exception&) {  // the backing file or the memory failed: the command changed nothing
    reply = {.status = abi::kInternalError};
  }
  volume_.device().trace().add(TraceTrack::kQueue, queue, TraceWork::kCommand, now_, reply.done,
                               std::uint64_t{command.nsid} << 8 | command.opcode);
  reply.done = now_ = std::max(now_, reply.done);
  work();
  ++counters_.commands;
  counters_.failed_commands += reply.status != abi::kSuccess;
  counters_.host_bytes_in += sizeof command + data.size();
  counters_.host_bytes_out += abi::kCqeBytes + reply.data.size();
  return reply;
}

// What the firmware does between commands; a failure shows at the next commit.
void Drive::work() {
  volume_.ftl().set_time(now_);
  try {
    volume_.store().work();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): nobody asked for it, and nothing is lost
  }
}

Drive::Completion Drive::submit(SqeView sqe, std::span<const std::byte> data) {
  abi::Sqe command;
  std::memcpy(&command, sqe.data(), sizeof command);
  Reply reply = execute(command, data);
  const abi::Cqe cqe{
      .result = reply.result, .sq_head = 0, .sq_id = 0, .cid = command.cid, .status = status_word(reply.status)};
  Completion completion{{}, std::move(reply.data), reply.done};
  std::memcpy(completion.cqe.data(), &cqe, sizeof cqe);
  return completion;
}

std::optional<std::uint64_t> Drive::payload_bytes(const abi::AttnSubmit& command) const {
  const std::lock_guard lock(mutex_);
  return attention_.payload_bytes(command);
}

std::uint32_t Drive::run_job(std::span<std::byte> memory, std::uint64_t job, std::uint32_t queue) {
  const std::lock_guard lock(mutex_);
  const auto [status, done] = attention_.run_in(memory, job, now_);
  volume_.device().trace().add(TraceTrack::kQueue, queue, TraceWork::kCommand, now_, done,
                               abi::kCp << 8 | nvme::kExecuteProgram);
  now_ = std::max(now_, done);
  return status;
}

void Drive::forget_everything() {
  for (const std::uint32_t session : volume_.store().sessions()) {
    abi::SessionTrim everything{};
    everything.session = session;
    volume_.store().trim(everything);
  }
  volume_.blocks().deallocate(0, volume_.blocks().size());
  tickets_.clear();
  volume_.commit();
}

abi::NvmeStatus Drive::format() {
  const std::lock_guard lock(mutex_);
  try {
    forget_everything();
  } catch (const std::exception&) {
    return abi::kInternalError;
  }
  return abi::kSuccess;
}

abi::NvmeStatus Drive::sanitize() {
  const std::lock_guard lock(mutex_);
  volume_.ftl().set_time(now_);
  try {
    forget_everything();
    volume_.sanitize();
  } catch (const std::exception&) {
    return abi::kInternalError;
  }
  return abi::kSuccess;
}

std::uint64_t Drive::blocks_used() const {
  const std::lock_guard lock(mutex_);
  return volume_.blocks().used();
}

bool Drive::strikes(FaultKind kind) {
  if (!faults_armed_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(mutex_);
  return volume_.faults().strikes(kind);
}

DriveStats Drive::stats() const {
  const std::lock_guard lock(mutex_);
  DriveStats stats = counters_;
  stats.pages_written = volume_.ftl().counters().groups_written;
  stats.pages_read = volume_.ftl().counters().groups_read;
  stats.tail_bytes_read = attention_.tail_bytes_read();
  stats.attention_jobs = attention_.jobs();
  return stats;
}

FlashStats Drive::flash_stats() const {
  const std::lock_guard lock(mutex_);
  const Ftl& ftl = volume_.ftl();
  FlashStats stats{.ftl = ftl.counters(),
                   .filter = attention_.filtered(),
                   .wear = ftl.wear(),
                   .ecc = volume_.device().ecc(),
                   .device_ns = now_,
                   .engine_cycles = attention_.engine_cycles(),
                   .memory_bytes = volume_.device().memory_bytes(),
                   .journal_bytes = volume_.journal_bytes(),
                   .file_writes = volume_.file_writes(),
                   .groups_live = ftl.live(),
                   .groups_available = ftl.available(),
                   .groups_queued = ftl.queued(),
                   .tail_bytes = volume_.store().tail_bytes(),
                   .metadata_bytes = ftl.metadata_bytes(),
                   .run_groups = volume_.store().run_groups(),
                   .limits = volume_.limits(),
                   .channels = {}};
  for (std::uint32_t i = 0; i < volume_.superblock().geometry.channels; ++i) {
    stats.channels.push_back(volume_.device().channel(i));
  }
  return stats;
}

ReadStats Drive::read_stats() const {
  const std::lock_guard lock(mutex_);
  const DirectReads* reads = volume_.direct_reads();
  if (reads == nullptr) return {};
  return {reads->counters(), reads->around_cache(), reads->asynchronous()};
}

std::vector<std::uint32_t> Drive::sessions() const {
  const std::lock_guard lock(mutex_);
  return volume_.store().sessions();
}

std::vector<HeadSummary> Drive::heads(std::uint32_t session) const {
  const std::lock_guard lock(mutex_);
  std::vector<HeadSummary> found;
  for (const HeadRows* rows : volume_.store().heads(session)) {
    const HeadRows::Name& name = rows->name();
    found.push_back({name.layer, name.head, name.kind, rows->tokens(), rows->row_bytes(), rows->sparse()});
  }
  return found;
}

std::vector<std::byte> Drive::rows(std::uint32_t session, std::uint32_t layer, std::uint32_t head, abi::KvKind kind) {
  const std::lock_guard lock(mutex_);
  const HeadRows* found = volume_.store().find(session, layer, head, kind);
  if (!found) return {};
  std::vector<std::byte> bytes(std::size_t{found->tokens()} * found->row_bytes());
  RowFetch fetch;
  fetch.add(*found, 0, found->tokens(), bytes.data());
  if (!fetch.run(volume_.ftl(), now_, Sink::kFirmware).whole)
    throw std::runtime_error("a flash page lost its contents");
  return bytes;
}

void Drive::inject(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  volume_.inject(fault);
  faults_armed_ = true;
}

void Drive::keep_trace(std::size_t events) {
  const std::lock_guard lock(mutex_);
  volume_.device().trace().keep(events);
}

std::size_t Drive::write_trace(std::ostream& out) {
  const std::lock_guard lock(mutex_);
  return volume_.device().trace().write(out);
}

std::vector<std::string> Drive::check() {
  const std::lock_guard lock(mutex_);
  return volume_.check();
}

Drive::Reply Drive::dispatch(const abi::Sqe& command, std::span<const std::byte> data, std::uint64_t room) {
  if (command.nsid == abi::kNvm && of_blocks(command.opcode)) return access_blocks(command, data, room);
  if (!known(command.opcode)) return {.status = abi::kInvalidOpcode};
  if (command.flags & kFuseMask) return {.status = abi::kInvalidField};
  if (command.nsid != namespace_of(command.opcode)) return {.status = abi::kInvalidNamespace};
  const bool host_to_controller = command.opcode & 1;
  if (!host_to_controller && !data.empty()) return {.status = abi::kDataLength};
  switch (command.opcode) {
    case abi::kKvAppend:
      return append(std::bit_cast<abi::KvAppend>(command), data);
    case abi::kAttnSubmit:
      return submit_attention(std::bit_cast<abi::AttnSubmit>(command), data);
    case abi::kAttnFetch:
      return fetch_attention(std::bit_cast<abi::AttnFetch>(command), room);
    case abi::kFlush:
      return flush();
    case abi::kSessionFork:
      return {.status = volume_.store().fork(std::bit_cast<abi::SessionFork>(command))};
    case nvme::kSessionErase:
      return erase(std::bit_cast<abi::SessionTrim>(command));
    case abi::kSessionTrim:
      return {.status = volume_.store().trim(std::bit_cast<abi::SessionTrim>(command))};
    default:
      return {.status = abi::kInvalidOpcode};
  }
}

Drive::Reply Drive::append(const abi::KvAppend& command, std::span<const std::byte> data) {
  const std::uint64_t bytes = std::uint64_t{command.heads} * command.tokens * command.row_bytes;
  const bool payload = volume_.ftl().keeps_payload();
  if (!payload && data.empty()) {
    nothing_.resize(std::max<std::size_t>(nothing_.size(), bytes));
    data = std::span(nothing_).first(bytes);
  }
  if (data.size() != bytes) return {.status = abi::kDataLength};
  if (payload && crc32c(data) != command.crc32c) return {.status = abi::kCrcMismatch};
  std::uint32_t tokens_in_groups = 0;
  const Ns accepted = volume_.device().accept_write(data.size(), now_);
  volume_.ftl().set_time(accepted);
  const auto status = volume_.store().append(command, data, tokens_in_groups);
  Reply reply{.status = status, .result = tokens_in_groups, .done = accepted};
  if (status == abi::kSuccess && (command.options & abi::kAppendFua)) reply.done = flush().done;
  return reply;
}

// `work` makes everything so far durable. In device time: the programs in flight, and one for each page of the journal.
template <typename Work>
Drive::Reply Drive::durably(Work work) {
  const std::uint64_t before = volume_.journal_bytes();
  work();
  const Geometry& g = volume_.superblock().geometry;
  const std::uint32_t program_bytes = g.units_per_program() * abi::kPageBytes;
  Ns done = std::max(volume_.ftl().now(), volume_.ftl().programs_done());
  const Ns start = done;
  for (std::uint64_t left = volume_.journal_bytes() - before; left > 0;
       left -= std::min<std::uint64_t>(left, program_bytes)) {
    journal_die_ = (journal_die_ + 1) % g.dies();
    done = std::max(done, volume_.device().program(journal_die_, 0, program_bytes, start));
  }
  return {.done = done};
}

Drive::Reply Drive::flush() {
  return durably([this] { volume_.commit(); });
}

// Results that wait for their ATTN_FETCH stay.
Drive::Reply Drive::erase(const abi::SessionTrim& command) {
  const std::vector<Family> families = volume_.store().families(command.session);
  if (const auto status = volume_.store().trim(command); status != abi::kSuccess) return {.status = status};
  std::uint64_t blocks = 0;
  Reply reply = durably([&] { blocks = volume_.erase_forgotten(families, command.session); });
  reply.result = blocks;
  reply.done = std::max(reply.done, volume_.ftl().erases_done());
  return reply;
}

// READ, WRITE, WRITE_ZEROES, DATASET_MANAGEMENT.
Drive::Reply Drive::access_blocks(const abi::Sqe& command, std::span<const std::byte> data, std::uint64_t room) {
  if (command.flags & kFuseMask) return {.status = abi::kInvalidField};
  if (command.opcode == nvme::kNvmDatasetManagement) return deallocate(command, data);
  BlockStore& blocks = volume_.blocks();
  const std::uint64_t first = command.cdw10 | std::uint64_t{command.cdw11} << 32;
  const std::uint32_t count = (command.cdw12 & 0xffff) + 1;
  const std::uint64_t bytes = std::uint64_t{count} * nvme::kLbaBytes;
  Reply reply{.done = now_};
  if (!blocks.holds(first, count)) return {.status = nvme::kScLbaOutOfRange};
  if (command.opcode == nvme::kNvmRead) {
    if (room < bytes) return {.status = abi::kDataLength};
    reply.data.resize(bytes);
    const Ns ready = now_ + volume_.device().firmware_read(static_cast<std::uint32_t>(bytes));
    const auto read = blocks.read(first, reply.data, ready);
    if (!read.whole) return {.status = abi::kUnrecoveredRead};
    counters_.block_reads += count;
    reply.done = read.done;
    return reply;
  }
  if (command.opcode == nvme::kNvmWrite) {
    if (data.size() != bytes) return {.status = abi::kDataLength};
    reply.done = volume_.device().accept_write(bytes, now_);
    volume_.ftl().set_time(reply.done);
    try {
      blocks.write(first, data);
    } catch (const DriveFull&) {
      return {.status = abi::kCapacityExceeded};
    }
    counters_.block_writes += count;
  } else if (command.opcode == nvme::kNvmWriteZeroes) {
    blocks.deallocate(first, count);  // zeros take no flash
  } else {
    return {.status = abi::kInvalidOpcode};
  }
  if (command.cdw12 & kForceUnitAccess) reply.done = flush().done;
  return reply;
}

Drive::Reply Drive::deallocate(const abi::Sqe& command, std::span<const std::byte> data) {
  const std::size_t count = (command.cdw10 & 0xff) + 1;
  if (data.size() != count * sizeof(nvme::DatasetRange)) return {.status = abi::kDataLength};
  std::vector<nvme::DatasetRange> ranges(count);
  std::memcpy(ranges.data(), data.data(), data.size());
  BlockStore& blocks = volume_.blocks();
  const auto fits = [&](const nvme::DatasetRange& range) { return blocks.holds(range.first_block, range.blocks); };
  if (!std::ranges::all_of(ranges, fits)) return {.status = nvme::kScLbaOutOfRange};
  if (command.cdw11 & kDeallocate) {  // the other attributes are hints
    for (const nvme::DatasetRange& range : ranges) blocks.deallocate(range.first_block, range.blocks);
  }
  return {.done = now_};
}

Drive::Reply Drive::submit_attention(const abi::AttnSubmit& command, std::span<const std::byte> data) {
  if (const auto status = attention_.check(command, data.size()); status != abi::kSuccess) return {.status = status};
  if (crc32c(data) != command.crc32c) return {.status = abi::kCrcMismatch};
  if (tickets_.size() >= kMaxTickets) return {.status = abi::kTicketsExhausted};
  const Ns arrival = volume_.device().to_host(data.size(), now_);
  if (volume_.faults().strikes(FaultKind::kEngineHang)) {
    return {.status = abi::kInternalError, .done = arrival + kEngineTimeout};
  }
  AttentionOutcome outcome = attention_.run(command, data, arrival);
  const Ns done = outcome.done;
  do {
    ++last_ticket_;
  } while (last_ticket_ == 0 || tickets_.contains(last_ticket_));
  tickets_.emplace(last_ticket_, std::move(outcome));
  return {.result = last_ticket_, .done = done};
}

Drive::Reply Drive::fetch_attention(const abi::AttnFetch& command, std::uint64_t room) {
  const auto zero = [](std::uint32_t value) { return value == 0; };
  if (!std::ranges::all_of(command.reserved0, zero) || !std::ranges::all_of(command.reserved1, zero)) {
    return {.status = abi::kInvalidField};
  }
  const auto found = tickets_.find(command.ticket);
  if (found == tickets_.end()) return {.status = abi::kUnknownTicket};
  AttentionOutcome& outcome = found->second;
  if (outcome.status == abi::kSuccess && (command.data_bytes != outcome.data.size() || room < outcome.data.size())) {
    return {.status = abi::kDataLength};  // the ticket stays
  }
  const Ns sent = volume_.device().to_host(outcome.data.size(), now_);
  Reply reply{outcome.status, outcome.result, std::move(outcome.data), sent};
  tickets_.erase(found);
  return reply;
}

}  // namespace kvdrive
