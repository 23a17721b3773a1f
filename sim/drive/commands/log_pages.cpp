// SPDX-License-Identifier: Apache-2.0
#include "commands/log_pages.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <ranges>
#include <span>

#include "commands/subsystem.hpp"
#include "commands/table.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::uint16_t kRoomKelvin = 298;  // a simulated drive has no temperature of its own
constexpr std::uint8_t kSpareThresholdPercent = 10;
constexpr std::uint8_t kSpareWarning = 0x1, kReliabilityWarning = 0x4;
constexpr std::uint64_t kDataUnitBytes = 1000 * 512;

std::vector<std::byte> supported_pages() {
  std::array<std::uint32_t, 256> pages{};
  for (const LogPage page : {kLogSupportedPages, kLogErrors, kLogSmart, kLogFirmware, kLogChangedNamespaces,
                             kLogCommandEffects, kLogSanitizeStatus, kLogStatistics, kLogPrograms, kLogSessions}) {
    pages[page] = 1;
  }
  return bytes_of(pages);
}

std::vector<std::byte> error_log(const Subsystem& subsystem) {
  std::array<ErrorEntry, kErrorLogEntries> entries{};
  std::ranges::copy(subsystem.errors(entries.size()), entries.begin());
  return bytes_of(entries);
}

std::vector<std::byte> smart_log(Subsystem& subsystem) {
  const FlashStats flash = subsystem.drive().flash_stats();
  const HostCounters host = subsystem.host_counters();
  const Geometry& g = subsystem.drive().layout().geometry;
  const std::uint64_t blocks = std::uint64_t{g.dies()} * g.blocks_per_die;
  const auto age = std::chrono::steady_clock::now() - subsystem.opened();
  SmartLog log{};
  std::ranges::copy(std::bit_cast<std::array<std::uint8_t, 2>>(kRoomKelvin), log.temperature);
  log.spare_percent = static_cast<std::uint8_t>(100 - 100 * flash.wear.bad / blocks);
  log.spare_threshold = kSpareThresholdPercent;
  log.critical_warning = log.spare_percent < kSpareThresholdPercent ? kSpareWarning : 0;
  if (flash.ftl.lost_groups > 0) log.critical_warning |= kReliabilityWarning;
  log.used_percent = static_cast<std::uint8_t>(
      std::min<std::uint64_t>(255, flash.wear.most * 100 / subsystem.drive().preset().timing.rated_erases));
  log.data_units_read[0] = (host.bytes_read + kDataUnitBytes - 1) / kDataUnitBytes;
  log.data_units_written[0] = (host.bytes_written + kDataUnitBytes - 1) / kDataUnitBytes;
  log.host_reads[0] = host.reads;
  log.host_writes[0] = host.writes;
  log.busy_minutes[0] = flash.device_ns / 60'000'000'000;
  log.power_cycles[0] = 1;
  log.power_on_hours[0] = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::hours>(age).count());
  log.media_errors[0] = flash.ftl.lost_groups;
  log.error_entries[0] = subsystem.error_count();
  return bytes_of(log);
}

std::vector<std::byte> firmware_log() {
  FirmwareLog log{};
  log.active = 1;
  const std::array<char, 8> revision{'1', '.', '0', ' ', ' ', ' ', ' ', ' '};
  log.slots[0] = std::bit_cast<std::uint64_t>(revision);
  return bytes_of(log);
}

std::vector<std::byte> effects_log(std::uint32_t csi) {
  struct {
    std::uint32_t admin[256];
    std::uint32_t io[256];
    std::uint32_t reserved[512];
  } log{};
  for (const Command& row : all_commands()) {
    if (row.nsid == 0) log.admin[row.opcode] = kSupported | row.effects;
    if (row.nsid != 0 && command_set_of(row.nsid) == csi) log.io[row.opcode] = kSupported | row.effects;
  }
  return bytes_of(log);
}

std::vector<std::byte> sessions(Subsystem& subsystem) {
  std::vector<std::uint32_t> list = subsystem.drive().sessions();
  list.insert(list.begin(), static_cast<std::uint32_t>(list.size()));
  const auto bytes = std::as_bytes(std::span(list));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> statistics(Subsystem& subsystem) {
  const DriveStats drive = subsystem.drive().stats();
  const FlashStats flash = subsystem.drive().flash_stats();
  DriveStatistics s{};
  s.version = 2;
  s.commands = drive.commands;
  s.failed_commands = drive.failed_commands;
  s.host_bytes_in = drive.host_bytes_in;
  s.host_bytes_out = drive.host_bytes_out;
  s.pages_written = drive.pages_written;
  s.pages_read = drive.pages_read;
  s.tail_bytes_read = drive.tail_bytes_read;
  s.attention_jobs = drive.attention_jobs;
  s.device_ns = flash.device_ns;
  s.engine_cycles = flash.engine_cycles;
  s.memory_bytes = flash.memory_bytes;
  s.journal_bytes = flash.journal_bytes;
  s.file_writes = flash.file_writes;
  s.groups_live = flash.groups_live;
  s.groups_available = flash.groups_available;
  s.groups_queued = flash.groups_queued;
  s.groups_moved = flash.ftl.groups_moved;
  s.units_programmed = flash.ftl.units_programmed;
  s.pages_sensed = flash.ftl.pages_sensed;
  s.lost_groups = flash.ftl.lost_groups;
  s.filter_pages = flash.filter.pages;
  s.filter_rows_kept = flash.filter.rows_kept;
  s.filter_rows_dropped = flash.filter.rows_dropped;
  s.filter_bytes = flash.filter.bytes_kept;
  s.tail_bytes = flash.tail_bytes;
  s.metadata_bytes = flash.metadata_bytes;
  s.erases = flash.wear.erases;
  s.least_erases = flash.wear.least;
  s.most_erases = flash.wear.most;
  s.bad_blocks = flash.wear.bad;
  s.program_failures = flash.ftl.program_failures;
  s.erase_failures = flash.ftl.erase_failures;
  s.channels = flash.channels.size();
  for (const ChannelCounters& channel : flash.channels) {
    s.channel_bytes += channel.bytes;
    s.channel_busy_ns += channel.busy_ns;
  }
  s.block_reads = drive.block_reads;
  s.block_writes = drive.block_writes;
  s.tail_budget = flash.limits.tail_bytes;
  s.metadata_budget = flash.limits.metadata_bytes;
  s.session_groups = flash.limits.session_groups;
  s.run_groups = flash.run_groups;
  s.groups_levelled = flash.ftl.groups_levelled;
  s.reads_retried = flash.ecc.reads_retried;
  s.sensings_repeated = flash.ecc.sensings;
  return bytes_of(s);
}

}  // namespace

std::uint64_t log_bytes(const abi::Sqe& command) {
  const std::uint64_t dwords = (command.cdw10 >> 16 | std::uint64_t{command.cdw11 & 0xffff} << 16) + 1;
  return dwords * 4;
}

Reply log_page(Subsystem& subsystem, const abi::Sqe& command, std::uint64_t room) {
  const std::uint64_t wanted = log_bytes(command);
  const std::uint64_t offset = command.cdw12 | std::uint64_t{command.cdw13} << 32;
  const std::uint32_t csi = command.cdw14 >> 24;
  if (wanted > room) return {.status = abi::kDataLength};
  std::vector<std::byte> page;
  switch (command.cdw10 & 0xff) {
    case kLogSupportedPages:
      page = supported_pages();
      break;
    case kLogErrors:
      page = error_log(subsystem);
      break;
    case kLogSmart:
      page = smart_log(subsystem);
      break;
    case kLogFirmware:
      page = firmware_log();
      break;
    case kLogChangedNamespaces:
      page.resize(4096);  // they never change
      break;
    case kLogCommandEffects:
      if (csi != kCsiNvm && csi != kCsiMemory && csi != kCsiPrograms) return {.status = kScBadCommandSet};
      page = effects_log(csi);
      break;
    case kLogSanitizeStatus:
      page = subsystem.sanitizer().status();
      break;
    case kLogStatistics:
      page = statistics(subsystem);
      break;
    case kLogPrograms:
      page = subsystem.programs().descriptors();
      break;
    case kLogSessions:
      page = sessions(subsystem);
      break;
    default:
      return {.status = kScBadLogPage};
  }
  if (offset > page.size() || offset % 4 != 0) return {.status = abi::kInvalidField};
  // Behind the end of a log page the data are zeros.
  page.erase(page.begin(), page.begin() + static_cast<std::ptrdiff_t>(offset));
  constexpr std::uint64_t kLongest = 1 << 16;  // of a reply; longer pages are read in parts
  if (wanted > kLongest) return {.status = abi::kInvalidField};
  page.resize(wanted);
  return {.data = std::move(page)};
}

}  // namespace kvdrive::nvme
