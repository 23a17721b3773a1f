// SPDX-License-Identifier: Apache-2.0
// The state that the drive's commands work on, one command at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "attention/attention_unit.hpp"
#include "commands/reply.hpp"
#include "commands/tickets.hpp"
#include "engine/engine.hpp"
#include "feed_forward/ffn_unit.hpp"
#include "values/uploads.hpp"
#include "volume.hpp"

namespace kvdrive {

// Counters since the drive was opened. Host bytes count commands and completions as well as data.
struct DriveStats {
  std::uint64_t commands = 0;
  std::uint64_t failed_commands = 0;
  std::uint64_t host_bytes_in = 0;
  std::uint64_t host_bytes_out = 0;
  std::uint64_t pages_written = 0;
  std::uint64_t pages_read = 0;
  std::uint64_t staged_bytes_read = 0;  // K and V read from staged rows
  std::uint64_t attention_jobs = 0;
  std::uint64_t block_reads = 0;  // logical blocks
  std::uint64_t block_writes = 0;
  std::uint64_t value_stores = 0;
  std::uint64_t value_retrieves = 0;
};

struct DriveState {
  DriveState(const std::filesystem::path& path, std::unique_ptr<Engine> with, const VolumeOptions& options)
      : volume(path, options), engine(std::move(with)) {}

  Volume volume;
  std::unique_ptr<Engine> engine;
  AttentionUnit attention{*engine, volume.store(), volume.ftl(), volume.device()};
  FfnUnit ffn{*engine, volume.values(), volume.ftl(), volume.device(), attention.clock()};
  Tickets tickets;
  Uploads uploads{volume.values()};
  std::atomic<std::uint32_t> inactive_programs = 0;  // one bit for each value of enum Program
  std::vector<std::byte> nothing;                    // the rows of a drive that stores no contents
  std::uint32_t journal_die = 0;                     // the die of the next journal program; they rotate over the dies
  Ns now = 0;
  DriveStats counters;

  // Runs `work`, which makes everything so far durable. Returns the device time at which that is done: after the
  // programs in flight and one program for each page of the journal.
  template <typename Work>
  Ns durably(Work work) {
    const std::uint64_t before = volume.journal_bytes();
    work();
    const Geometry& g = volume.superblock().geometry;
    const std::uint32_t program_bytes = g.units_per_program() * abi::kPageBytes;
    Ns done = std::max(volume.ftl().now(), volume.ftl().programs_done());
    const Ns start = done;
    for (std::uint64_t left = volume.journal_bytes() - before; left > 0;
         left -= std::min<std::uint64_t>(left, program_bytes)) {
      journal_die = (journal_die + 1) % g.dies();
      done = std::max(done, volume.device().program(journal_die, 0, program_bytes, start));
    }
    return done;
  }

  Ns flush() {
    return durably([this] { volume.commit(); });
  }
};

}  // namespace kvdrive
