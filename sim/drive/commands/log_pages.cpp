// SPDX-License-Identifier: Apache-2.0
#include "commands/log_pages.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <ranges>
#include <span>

#include "commands/admin_context.hpp"
#include "commands/features.hpp"
#include "commands/subsystem.hpp"
#include "commands/table.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::uint8_t kSpareThresholdPercent = 10;
constexpr std::uint8_t kSpareWarning = 0x1, kTemperatureWarning = 0x2, kReliabilityWarning = 0x4;
constexpr std::uint64_t kDataUnitBytes = 1000 * 512;
constexpr std::uint32_t kGroupsOnly = 1 << 8;  // CDW10 of the ANA log page: no list of namespaces

std::vector<std::byte> supported_pages() {
  std::array<std::uint32_t, 256> pages{};
  for (const LogPage page :
       {kLogSupportedPages, kLogErrors, kLogSmart, kLogFirmware, kLogChangedNamespaces, kLogCommandEffects, kLogAna,
        kLogFeatureEffects, kLogSanitizeStatus, kLogStatistics, kLogPrograms, kLogSessions}) {
    pages[page] = 1;
  }
  return bytes_of(pages);
}

std::vector<std::byte> error_log(Subsystem& subsystem) {
  std::vector<std::byte> page;
  for (const auto& entry : subsystem.drive().health().errors()) {
    page.insert(page.end(), entry.begin(), entry.end());
  }
  page.resize(Health::kMostErrors * sizeof(ErrorEntry));
  return page;
}

// One group holds all namespaces and is in the optimized state on every controller.
std::vector<std::byte> ana_log(bool groups_only) {
  AnaLog log{};
  log.groups = 1;
  log.group = kAnaGroup;
  log.state = 0x1;
  if (groups_only) return bytes_of(log);
  log.namespaces = kMaxNsid;
  for (std::uint32_t i = 0; i < kMaxNsid; ++i) log.nsid[i] = i + 1;
  return bytes_of(log);
}

std::vector<std::byte> feature_effects() {
  constexpr std::uint32_t kOfNamespace = 1 << 20, kOfController = 1 << 21;
  std::array<std::uint32_t, 256> features{};
  for (const Feature feature : Features::kKnown) features[feature] = kSupported | kOfController;
  features[kFeatureKeyValue] = kSupported | kOfNamespace;
  return bytes_of(features);
}

std::vector<std::byte> smart_log(Subsystem& subsystem, bool temperature_warning) {
  const FlashStats flash = subsystem.drive().flash_stats();
  subsystem.drive().health().set_device(flash.device_ns, flash.ftl.lost_groups);
  const HealthCounters life = subsystem.drive().health().counters();
  const Geometry& g = subsystem.drive().layout().geometry;
  const std::uint64_t blocks = std::uint64_t{g.dies()} * g.blocks_per_die;
  SmartLog log{};
  std::ranges::copy(std::bit_cast<std::array<std::uint8_t, 2>>(std::uint16_t{kRoomKelvin}), log.temperature);
  log.spare_percent = static_cast<std::uint8_t>(100 - 100 * flash.wear.bad / blocks);
  log.spare_threshold = kSpareThresholdPercent;
  log.critical_warning = log.spare_percent < kSpareThresholdPercent ? kSpareWarning : 0;
  if (temperature_warning) log.critical_warning |= kTemperatureWarning;
  if (life.media_errors > 0) log.critical_warning |= kReliabilityWarning;
  log.used_percent = static_cast<std::uint8_t>(
      std::min<std::uint64_t>(255, flash.wear.most * 100 / subsystem.drive().preset().timing.rated_erases));
  log.data_units_read[0] = (life.bytes_read + kDataUnitBytes - 1) / kDataUnitBytes;
  log.data_units_written[0] = (life.bytes_written + kDataUnitBytes - 1) / kDataUnitBytes;
  log.host_reads[0] = life.host_reads;
  log.host_writes[0] = life.host_writes;
  log.busy_minutes[0] = life.busy_ns / 60'000'000'000;
  log.power_cycles[0] = life.power_cycles;
  log.power_on_hours[0] = life.power_on_seconds / 3600;
  log.unsafe_shutdowns[0] = life.unsafe_shutdowns;
  log.media_errors[0] = life.media_errors;
  log.error_entries[0] = life.errors;
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
  s.staged_bytes_read = drive.staged_bytes_read;
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
  s.staged_bytes = flash.staged_bytes;
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
  s.staged_budget = flash.limits.staged_bytes;
  s.metadata_budget = flash.limits.metadata_bytes;
  s.session_groups = flash.limits.session_groups;
  s.run_groups = flash.run_groups;
  s.groups_levelled = flash.ftl.groups_levelled;
  s.reads_retried = flash.ecc.reads_retried;
  s.sensings_repeated = flash.ecc.sensings;
  s.values = flash.values;
  s.value_bytes = flash.value_bytes;
  s.value_stores = drive.value_stores;
  s.value_retrieves = drive.value_retrieves;
  return bytes_of(s);
}

}  // namespace

std::uint64_t log_bytes(const abi::Sqe& command) {
  const std::uint64_t dwords = (command.cdw10 >> 16 | std::uint64_t{command.cdw11 & 0xffff} << 16) + 1;
  return dwords * 4;
}

Reply log_page(AdminContext& host, const abi::Sqe& command, std::uint64_t room) {
  Subsystem& subsystem = host.subsystem();
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
      page = smart_log(subsystem, host.temperature_warning());
      break;
    case kLogFirmware:
      page = firmware_log();
      break;
    case kLogChangedNamespaces:
      page.resize(4096);  // its contents never change
      break;
    case kLogCommandEffects:
      if (csi != kCsiNvm && csi != kCsiKeyValue && csi != kCsiMemory && csi != kCsiPrograms)
        return {.status = kScBadCommandSet};
      page = effects_log(csi);
      break;
    case kLogAna:
      page = ana_log(command.cdw10 & kGroupsOnly);
      break;
    case kLogFeatureEffects:
      page = feature_effects();
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
      return {.status = kScBadLogPage, .location = kInCdw10};
  }
  if (offset > page.size() || offset % 4 != 0) return {.status = abi::kInvalidField, .location = kInCdw12};
  // Data beyond the end of a log page are zeros.
  page.erase(page.begin(), page.begin() + static_cast<std::ptrdiff_t>(offset));
  constexpr std::uint64_t kLongest = 1 << 16;  // longest reply; longer pages are read in parts
  if (wanted > kLongest) return {.status = abi::kInvalidField, .location = kInCdw10 + 2};
  page.resize(wanted);
  return {.data = std::move(page)};
}

}  // namespace kvdrive::nvme
