// SPDX-License-Identifier: Apache-2.0
#include "commands/identify.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "commands/subsystem.hpp"
#include "commands/table.hpp"
#include "crc32c.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::string_view kFirmware = "1.0";
constexpr std::uint8_t kLbaShift = 12;
static_assert(kLbaBytes == 1 << kLbaShift);

template <std::size_t N>
void put_string(std::uint8_t (&field)[N], std::string_view text) {
  std::copy_n(text.begin(), std::min(N - 1, text.size()), field);
}

// The NGUID follows from the serial number and the namespace's number, so it is unique to the namespace and the same in
// every process. EUI64 stays 0, because it needs a registered vendor.
std::array<std::uint8_t, 16> nguid_of(const Subsystem& subsystem, std::uint32_t nsid) {
  std::array<std::uint8_t, 16> id{};
  const auto serial = std::as_bytes(std::span(subsystem.serial()));
  const std::uint32_t crc = crc32c(serial);
  std::memcpy(id.data(), "kvdrive", 7);
  std::memcpy(id.data() + 8, &crc, sizeof crc);
  std::memcpy(id.data() + 12, &nsid, sizeof nsid);
  return id;
}

IdentifyController controller_data(Subsystem& subsystem, const ControllerOptions& options, std::uint16_t id) {
  Drive& drive = subsystem.drive();
  const std::uint64_t capacity = drive.layout().capacity_units * abi::kPageBytes;
  IdentifyController c{};
  put_text(c.sn, subsystem.serial());
  put_text(c.mn, kModelName);
  put_text(c.fr, kFirmware);
  // VID, SSVID and IEEE stay 0: the drive has no registered vendor and borrows no other vendor's number.
  c.cmic = 0x2 | 0x8;  // several controllers; reports asymmetric access
  c.mdts = options.max_transfer_bytes == 0
               ? 0
               : static_cast<std::uint8_t>(std::countr_zero(options.max_transfer_bytes) - kLbaShift);
  c.cntlid = id;
  c.ver = kVersion21;
  c.ctratt = 0x1;  // 128-bit host identifier
  c.cntrltype = 1;
  c.oacs = 0x2;  // Format NVM
  c.acl = kAbortLimit - 1;
  c.aerl = kAsyncEventLimit - 1;
  c.frmw = 0x3;              // slot 1, read-only
  c.lpa = 0x2 | 0x4 | 0x20;  // command effects, offsets into log pages, feature effects
  c.elpe = Health::kMostErrors - 1;
  c.wctemp = kWarningKelvin;
  c.cctemp = kCriticalKelvin;
  c.tnvmcap[0] = capacity;
  c.sanicap = kSanitizeCapabilities;
  c.kas = 10;  // keep-alive timeouts have steps of 1 s
  c.sqes = 0x66;
  c.cqes = 0x44;
  c.maxcmd = options.fabrics ? options.max_queue_entries : 0;
  c.nn = kMaxNsid;
  c.mnan = kMaxNsid;
  // Compare, Dataset Management, Write Zeroes, Save and Select, Timestamp, Verify, Copy.
  c.oncs = 0x1 | 0x4 | 0x8 | 0x10 | 0x40 | 0x80 | 0x100;
  c.cdfs = 0x1;           // Copy supports format 0
  c.anatt = 10;           // seconds; but no group ever changes its state
  c.anacap = 0x1 | 0x40;  // reports the optimized state; a namespace never changes its group
  c.anagrpmax = c.nanagrpid = kAnaGroup;
  c.fna = 0;
  c.vwc = 0x7;                                      // volatile write cache; Flush accepts all namespaces
  c.sgls = 0x1 | (options.fabrics ? 1u << 20 : 0);  // SGLs; over fabrics also data at an offset in the capsule
  put_string(c.subnqn, subsystem.nqn());
  if (options.fabrics) {
    c.ioccsz = (abi::kSqeBytes + options.in_capsule_bytes) / 16;
    c.iorcsz = abi::kCqeBytes / 16;
    c.msdbd = static_cast<std::uint8_t>(options.max_sgl_descriptors);
  }
  put_string(c.engine, drive.engine());
  put_string(c.preset, drive.preset().name);
  c.engine_mhz = drive.preset().timing.engine_mhz;
  c.abi_version = abi::kAbiVersion;
  c.slm_bytes = subsystem.memory().size();
  c.kv_capacity_bytes = capacity;
  return c;
}

IdentifyNamespace block_namespace(Subsystem& subsystem, bool common) {
  IdentifyNamespace n{};
  n.lbaf[0] = std::bit_cast<std::uint32_t>(LbaFormat{.metadata_bytes = 0, .data_bits = kLbaShift, .performance = 0});
  n.nsfeat = 0x1;  // thin provisioning: pages are shared with the KV cache
  n.nmic = 0x1;    // several controllers share the namespace
  n.mssrl = kMaxCopyRangeBlocks;
  n.mcl = kMaxCopyBlocks;
  n.msrc = kMaxCopyRanges - 1;
  if (common) return n;
  n.anagrpid = kAnaGroup;
  const Drive& drive = subsystem.drive();
  n.nsze = n.ncap = drive.layout().capacity_units;
  n.nuse = drive.blocks_used();
  n.nvmcap[0] = n.nsze * kLbaBytes;
  n.dlfeat = 0x1 | 1 << 3;  // deallocated blocks read as zeros; Write Zeroes may deallocate
  std::ranges::copy(nguid_of(subsystem, abi::kNvm), n.nguid);
  return n;
}

KeyValueNamespace value_namespace(Subsystem& subsystem) {
  KeyValueNamespace n{};
  n.nsze = subsystem.drive().layout().capacity_units * abi::kPageBytes;  // shared with K, V and blocks
  n.nuse = subsystem.drive().flash_stats().value_bytes;
  n.nmic = 0x1;  // several controllers share the namespace
  n.novg = abi::kPageBytes;
  n.anagrpid = kAnaGroup;
  std::ranges::copy(nguid_of(subsystem, kNsidValues), n.nguid);
  KeyValueFormat format{};  // the only one; `keys` stays 0: drive memory and flash are the limits
  format.key_bytes = kMaxKeyBytes;
  format.value_bytes = kMaxValueBytes;
  std::memcpy(n.kvf, &format, sizeof format);
  return n;
}

// Some hosts ask for the sizes of every namespace before they ask for its command set, and take one without a capacity
// for inactive. The values have no blocks; their sizes are in units of a page.
IdentifyNamespace values_as_blocks(Subsystem& subsystem) {
  IdentifyNamespace n = block_namespace(subsystem, true);
  const KeyValueNamespace values = value_namespace(subsystem);
  n.nsze = n.ncap = values.nsze / kLbaBytes;
  n.nuse = (values.nuse + kLbaBytes - 1) / kLbaBytes;
  n.anagrpid = kAnaGroup;
  std::ranges::copy(values.nguid, n.nguid);
  return n;
}

std::vector<std::byte> descriptors(const Subsystem& subsystem, std::uint32_t nsid) {
  constexpr std::uint8_t kNguidType = 2, kCsiType = 4;
  std::vector<std::byte> list;
  const auto add = [&list](std::uint8_t type, std::span<const std::uint8_t> value) {
    const std::array head{std::byte{type}, static_cast<std::byte>(value.size()), std::byte{0}, std::byte{0}};
    list.insert(list.end(), head.begin(), head.end());
    const auto bytes = std::as_bytes(value);
    list.insert(list.end(), bytes.begin(), bytes.end());
  };
  add(kNguidType, nguid_of(subsystem, nsid));
  const auto set = static_cast<std::uint8_t>(command_set_of(nsid));
  add(kCsiType, std::span(&set, 1));
  return list;
}

std::vector<std::byte> active_list(std::uint32_t after, auto wanted) {
  std::vector<std::byte> list;
  for (std::uint32_t nsid = after + 1; nsid <= kMaxNsid; ++nsid) {
    if (!wanted(nsid)) continue;
    const auto bytes = bytes_of(nsid);
    list.insert(list.end(), bytes.begin(), bytes.end());
  }
  return list;
}

Reply of_command_set(Subsystem& subsystem, std::uint32_t nsid, std::uint32_t csi) {
  if (csi != command_set_of(nsid)) return {.status = kScBadCommandSet};
  switch (csi) {
    case kCsiKeyValue:
      return {.data = bytes_of(value_namespace(subsystem))};
    case kCsiMemory: {
      MemoryNamespace m{};
      m.nsze = m.ncap = subsystem.memory().size();
      m.granularity = kMemoryAlignment;
      return {.data = bytes_of(m)};
    }
    case kCsiPrograms: {
      ProgramsNamespace p{};
      p.programs = Programs::kCount;
      p.active_programs = static_cast<std::uint16_t>(subsystem.programs().active());
      p.max_memory_range_sets = kMaxMemoryRangeSets;
      p.max_memory_ranges = kMaxMemoryRanges;
      return {.data = bytes_of(p)};
    }
    case kCsiNvm:
      return {};  // there are no extended LBA formats
    default:
      return {.status = kScBadCommandSet};
  }
}

}  // namespace

Reply identify(Subsystem& subsystem, const ControllerOptions& options, std::uint16_t controller_id,
               const abi::Sqe& command) {
  const std::uint32_t cns = command.cdw10 & 0xff, csi = command.cdw11 >> 24, nsid = command.nsid;
  const bool exists = nsid >= 1 && nsid <= kMaxNsid;
  const bool known_set = csi == kCsiNvm || csi == kCsiKeyValue || csi == kCsiMemory || csi == kCsiPrograms;
  const bool of_namespace = cns == kCnsNamespace || cns == kCnsNamespaceDescriptors || cns == kCnsCsiNamespace ||
                            cns == kCnsIndependentNamespace;
  const bool common = cns == kCnsNamespace && nsid == kNsidAll;
  if (of_namespace && !exists && !common) return {.status = abi::kInvalidNamespace, .location = kInNsid};
  Reply reply;
  switch (cns) {
    case kCnsNamespace:
      if (nsid == kNsidValues) {
        reply.data = bytes_of(values_as_blocks(subsystem));
      } else if (common || nsid == abi::kNvm) {
        reply.data = bytes_of(block_namespace(subsystem, common));
      } else {
        return {.status = abi::kInvalidField, .location = kInNsid};
      }
      break;
    case kCnsController:
      reply.data = bytes_of(controller_data(subsystem, options, controller_id));
      break;
    case kCnsActiveNamespaces:
      if (nsid >= kNsidAll - 1) return {.status = abi::kInvalidNamespace, .location = kInNsid};
      reply.data = active_list(nsid, [](std::uint32_t) { return true; });
      break;
    case kCnsNamespaceDescriptors:
      reply.data = descriptors(subsystem, nsid);
      break;
    case kCnsCsiNamespace:
      reply = of_command_set(subsystem, nsid, csi);
      break;
    case kCnsCsiController:
      if (!known_set) return {.status = kScBadCommandSet};
      break;  // this command set has no limits of its own
    case kCnsCsiActiveNamespaces:
      if (!known_set) return {.status = kScBadCommandSet};
      if (nsid >= kNsidAll - 1) return {.status = abi::kInvalidNamespace, .location = kInNsid};
      reply.data = active_list(nsid, [csi](std::uint32_t id) { return command_set_of(id) == csi; });
      break;
    case kCnsIndependentNamespace: {
      IndependentNamespace n{};
      n.nsfeat = 0;
      n.nmic = 0x1;  // several controllers share the namespace
      n.anagrpid = kAnaGroup;
      n.nstat = 0x1;  // ready
      reply.data = bytes_of(n);
      break;
    }
    case kCnsCommandSets:  // one combination: all command sets
      reply.data = bytes_of(std::uint64_t{1 << kCsiNvm | 1 << kCsiKeyValue | 1 << kCsiMemory | 1 << kCsiPrograms});
      break;
    default:
      return {.status = abi::kInvalidField, .location = kInCdw10};
  }
  if (reply.status == abi::kSuccess) reply.data.resize(kIdentifyBytes);
  return reply;
}

}  // namespace kvdrive::nvme
