// SPDX-License-Identifier: Apache-2.0
#include "nand/preset.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "nand/plain.hpp"

namespace kvdrive {
namespace {

constexpr std::uint64_t kMib = 1 << 20;
constexpr std::uint64_t kPcie3x4 = 3360 * kMib;  // measured by NVMeVirt on a 970 PRO
constexpr std::uint64_t kDdr4 = 18'050'000'000;  // 94 % of DDR4-2400's 19.2 GB/s, bursts of 16 beats or more

constexpr Timing samsung970() {
  return {.page_types = 2,
          .read_4k_ns = {29'760, 41'760},
          .read_full_ns = {30'013, 42'013},
          .program_ns = {185'000, 185'000},
          .channel = {.bytes_per_second = 800 * kMib},
          .channel_chunk_bytes = 16'384,
          .pcie = {.bytes_per_second = kPcie3x4},
          .firmware_read_4k_ns = 21'500,
          .firmware_read_full_ns = 30'490,
          .firmware_write_ns = 4'000,
          .firmware_write_4k_ns = 460,
          .write_buffer_bytes = kMib,
          .dram = {.bytes_per_second = kDdr4},
          .engine_mhz = 300};
}

constexpr Timing zn540() {
  Timing t = samsung970();
  t.page_types = 1;
  t.read_4k_ns = {50'000};
  t.read_full_ns = {58'000};
  t.program_ns = {561'000};
  t.channel.bytes_per_second = 450 * kMib;
  t.pcie.bytes_per_second = 3050 * kMib;
  t.firmware_read_4k_ns = 20'000;
  t.firmware_read_full_ns = 13'000;
  t.write_buffer_bytes = 6 * kMib;
  return t;
}

constexpr Timing zns_prototype() {
  Timing t = samsung970();
  t.page_types = 1;
  t.read_4k_ns = {25'485};
  t.read_full_ns = {40'950};
  t.program_ns = {1'913'640};
  t.channel.firmware_ns_per_4k = 413;
  t.pcie.bytes_per_second = 3200 * kMib;
  t.firmware_read_4k_ns = 32'150;
  t.firmware_read_full_ns = 32'150;
  t.write_buffer_bytes = 16 * kMib;
  return t;
}

constexpr Timing mqsim() {
  return {.page_types = 1,
          .read_4k_ns = {75'000},
          .read_full_ns = {75'000},
          .program_ns = {750'000},
          .erase_ns = 3'800'000,
          .read_command_ns = 290,
          .program_command_ns = 290,
          .plane_gap_ns = 500,
          .channel = {.bytes_per_second = 333'000'000},
          .channel_chunk_bytes = 8'192,
          .pcie = {.bytes_per_second = 4'000'000'000},
          .write_buffer_bytes = kMib,
          .dram = {.bytes_per_second = kDdr4},
          .engine_mhz = 300};
}

constexpr Timing femu() {
  return {.page_types = 3,
          .read_4k_ns = {56'500, 77'500, 106'000},
          .read_full_ns = {56'500, 77'500, 106'000},
          .program_ns = {820'500, 2'225'000, 5'734'000},
          .erase_ns = 3'000'000,
          .channel = {.bytes_per_second = 312'475'000},
          .channel_chunk_bytes = 16'384,
          .pcie = {.bytes_per_second = kPcie3x4},
          .write_buffer_bytes = 4 * kMib,
          .dram = {.bytes_per_second = kDdr4},
          .engine_mhz = 300};
}

constexpr Timing instcsd() {
  Timing t = samsung970();
  t.suspend_ns = 5'000;
  t.cache_read = true;
  t.page_types = 1;
  t.read_4k_ns = {35'000};
  t.read_full_ns = {35'000};
  t.program_ns = {350'000};
  t.erase_ns = 3'000'000;
  t.channel.bytes_per_second = 1'400'000'000;
  t.firmware_read_4k_ns = 2'000;  // the engine asks the flash controllers directly, without NVMe commands
  t.firmware_read_full_ns = 2'000;
  t.write_buffer_bytes = 8 * kMib;
  t.engine_mhz = 285;
  return t;
}

constexpr Timing daisyplus() {
  Timing t = instcsd();
  t.channel.bytes_per_second = 800'000'000;
  t.dram.bytes_per_second = kDdr4;
  return t;
}

constexpr Timing smartssd() {
  Timing t = samsung970();
  t.filter = FilterAt::kComputer;
  t.peer = {.bytes_per_second = 3'000'000'000};
  t.peer_request_ns = 20'000;
  t.engine_mhz = 296;
  return t;
}

constexpr std::array kPresets{
    Preset{"970pro",
           "NVMeVirt's Samsung 970 PRO",
           {.channels = 8, .dies_per_channel = 2, .page_bytes = 32'768, .pages_per_block = 256},
           7,
           samsung970()},
    Preset{"zn540",
           "NVMeVirt's WD ZN540",
           {.channels = 8, .dies_per_channel = 4, .page_bytes = 32'768, .pages_per_program = 3, .pages_per_block = 384},
           7,
           zn540()},
    Preset{"zns-proto",
           "NVMeVirt's ZNS prototype",
           {.channels = 8, .dies_per_channel = 16, .page_bytes = 65'536, .pages_per_block = 64},
           7,
           zns_prototype()},
    Preset{"mqsim-default",
           "MQSim's default configuration",
           {.channels = 8, .dies_per_channel = 8, .planes = 2, .page_bytes = 8'192, .pages_per_block = 256},
           7,
           mqsim()},
    Preset{"femu-tlc",
           "FEMU's TLC latencies",
           {.channels = 8, .dies_per_channel = 8, .page_bytes = 16'384, .pages_per_block = 384},
           7,
           femu()},
    Preset{"instcsd",
           "InstInfer's software-defined drive: 8 channels of 1.4 GB/s; dies and latencies assumed",
           {.channels = 8, .dies_per_channel = 8, .page_bytes = 16'384, .pages_per_block = 256},
           7,
           instcsd()},
    Preset{"smartssd",
           "one NVMe drive and an FPGA behind a switch; the drive's insides assumed as 970pro",
           {.channels = 8, .dies_per_channel = 2, .page_bytes = 32'768, .pages_per_block = 256},
           7,
           smartssd()},
    Preset{"daisyplus",
           "Daisyplus OpenSSD: 4 channels, PCIe 3 x4; dies and latencies assumed",
           {.channels = 4, .dies_per_channel = 8, .page_bytes = 16'384, .pages_per_block = 256},
           7,
           daisyplus()},
};

}  // namespace

std::span<const Preset> presets() { return kPresets; }

const Preset& find_preset(std::string_view name) {
  if (name == kPlain.name) return kPlain;
  const auto* const found = std::ranges::find(kPresets, name, &Preset::name);
  if (found != kPresets.end()) return *found;
  std::string known;
  for (const Preset& preset : kPresets) known += (known.empty() ? "" : ", ") + std::string(preset.name);
  throw std::runtime_error("unknown preset '" + std::string(name) + "': choose one of " + known);
}

}  // namespace kvdrive
