// SPDX-License-Identifier: Apache-2.0
// The times of a drive's parts, in integer nanoseconds of device time.
#pragma once

#include <array>
#include <cstdint>

namespace kvdrive {

using Ns = std::uint64_t;

// A bus. As in NVMeVirt, a transfer takes the time of its 128-byte pieces, each rounded down, plus a firmware time for
// each 4 KiB.
struct LinkTiming {
  std::uint64_t bytes_per_second = 0;
  Ns firmware_ns_per_4k = 0;

  static constexpr std::uint32_t kPieceBytes = 128;
  constexpr Ns transfer(std::uint64_t bytes) const {
    if (bytes_per_second == 0) return 0;
    const Ns piece = kPieceBytes * 1'000'000'000ULL / bytes_per_second + firmware_ns_per_4k * kPieceBytes / 4096;
    return (bytes + kPieceBytes - 1) / kPieceBytes * piece;
  }
};

// A read that the first decoding does not correct is repeated `sensings` times with other voltages. On a block at its
// rated erases, `per_million` of the reads are repeated. For other blocks the rate is proportional to the square of the
// erases.
struct EccTier {
  std::uint32_t per_million = 0;
  std::uint32_t sensings = 0;

  constexpr std::uint64_t odds(std::uint64_t erases, std::uint64_t rated) const {
    return per_million * erases * erases / (rated * rated);
  }
};

// The place of the page filters, which drop unwanted rows.
enum class FilterAt : std::uint8_t {
  kChannel,   // in the flash controller: only wanted rows enter drive memory
  kComputer,  // in the FPGA behind an SSD: whole pages cross the link between the two
};

struct Timing {
  std::uint32_t page_types = 1;      // LSB, MSB and CSB pages alternate within a block
  std::array<Ns, 3> read_4k_ns{};    // sensing a page of which one unit is wanted
  std::array<Ns, 3> read_full_ns{};  // sensing a page
  std::array<Ns, 3> program_ns{};
  Ns erase_ns = 0;
  Ns suspend_ns = 0;        // 0: no suspend; a read waits for the program or erase before it
  bool cache_read = false;  // the die senses the next page while one is on the bus
  Ns read_command_ns = 0;   // command and address cycles on the channel
  Ns program_command_ns = 0;
  Ns plane_gap_ns = 0;  // between the commands of a multi-plane operation
  LinkTiming channel{};
  std::uint32_t channel_chunk_bytes = 0;  // pieces of a page; each moves on to the next bus
  LinkTiming pcie{};
  Ns firmware_read_4k_ns = 0;
  Ns firmware_read_full_ns = 0;
  Ns firmware_write_ns = 0;
  Ns firmware_write_4k_ns = 0;  // for each 4 KiB
  std::uint64_t write_buffer_bytes = 0;
  FilterAt filter = FilterAt::kChannel;
  LinkTiming peer{};  // link between SSD and FPGA if they are two devices; else unused
  Ns peer_request_ns = 0;
  LinkTiming dram{};             // drive memory (FPGA memory) that holds K and V of a job
  std::uint32_t engine_mhz = 0;  // clock of the engine; engine/cycles.hpp gives the cycles of a job
  std::array<EccTier, 3> ecc{EccTier{100'000, 1}, EccTier{10'000, 3}, EccTier{1'000, 7}};
  std::uint32_t rated_erases = 3000;

  // False if operations take no device time.
  constexpr bool modelled() const { return engine_mhz > 0; }
};

}  // namespace kvdrive
