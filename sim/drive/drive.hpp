// SPDX-License-Identifier: Apache-2.0
// The software drive: executes 64-byte NVMe commands on a KV cache that lives in a backing file.
//
// Commands run one at a time, in the order of submission, each to its end. Layouts and status codes: abi/abi.toml.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "commands/command.hpp"
#include "commands/drive_state.hpp"
#include "common/abi.hpp"
#include "engine/engine.hpp"
#include "volume.hpp"

namespace kvdrive {

// What happened inside since then.
struct FlashStats {
  FtlCounters ftl;
  FilterCounters filter;
  BandTable::Wear wear;
  EccCounters ecc;
  Ns device_ns = 0;
  std::uint64_t engine_cycles = 0;
  std::uint64_t memory_bytes = 0;  // into the engine's memory
  std::uint64_t journal_bytes = 0;
  std::uint64_t file_writes = 0;
  std::uint64_t groups_live = 0;
  std::uint64_t groups_available = 0;
  std::uint64_t groups_queued = 0;
  std::uint64_t staged_bytes = 0;
  std::uint64_t metadata_bytes = 0;
  std::uint32_t run_groups = 0;  // at present
  Limits limits;
  std::vector<ChannelCounters> channels;
};

// K or V of one head of a session.
struct HeadSummary {
  std::uint32_t layer = 0, head = 0;
  abi::KvKind kind = abi::kKeys;
  std::uint32_t tokens = 0, row_bytes = 0;
  bool sparse = false;
};

// Reads of the backing file around the page cache; none with a flash model.
struct ReadStats {
  DirectReads::Counters reads;
  bool around_cache = false;
  bool asynchronous = false;
};

// A status (type << 8 | code) as the status word of a completion, phase bit 0.
std::uint16_t status_word(std::uint32_t status);

class Drive {
 public:
  using SqeView = std::span<const std::byte, abi::kSqeBytes>;

  struct Completion {
    std::array<std::byte, abi::kCqeBytes> cqe;
    std::vector<std::byte> data;
    Ns done;  // device time
  };

  // Results of ATTN_SUBMIT that wait for their ATTN_FETCH.
  static constexpr std::size_t kMaxTickets = 256;

  // Throws std::runtime_error when `path` cannot be used.
  Drive(const std::filesystem::path& path, std::unique_ptr<Engine> engine, const VolumeOptions& options);

  // Executes a command of namespace 1 or 3. Never throws for what it says; may be called from several threads. The
  // command arrives when the one before it is done.
  nvme::Reply execute(const nvme::Request& request);
  // The same with the entries' bytes.
  Completion submit(SqeView sqe, std::span<const std::byte> data);

  // Length of ATTN_SUBMIT's data; nothing when the head is not there.
  std::optional<std::uint64_t> payload_bytes(const abi::AttnSubmit& command) const;
  // Runs a job that lies in memory of the host's own (subsystem local memory). Returns the engine's status word.
  std::uint32_t run_job(std::span<std::byte> memory, std::uint64_t job, std::uint32_t queue);
  // Makes everything so far durable: a FLUSH of the drive's own.
  abi::NvmeStatus flush();
  // Programs of namespace 3 (nvme::Program); all are active at first.
  void activate_program(std::uint32_t program, bool active);
  bool program_active(std::uint32_t program) const { return (state_.inactive_programs >> program & 1) == 0; }
  // Forgets all sessions and blocks, durably.
  abi::NvmeStatus format();
  // And erases the flash that held them. kInternalError: the file cannot be written; what is left is forgotten.
  abi::NvmeStatus sanitize();
  std::uint64_t blocks_used() const;
  // Counts an operation that a fault was injected for.
  bool strikes(FaultKind kind);

  Health& health() { return state_.volume.health(); }
  DriveStats stats() const;
  FlashStats flash_stats() const;
  ReadStats read_stats() const;
  std::vector<std::uint32_t> sessions() const;
  // What a session holds, by layer, head and kind; nothing for an unknown one.
  std::vector<HeadSummary> heads(std::uint32_t session) const;
  // All rows of K or V of a head; nothing where there are none. Throws std::runtime_error when a page is lost.
  std::vector<std::byte> rows(std::uint32_t session, std::uint32_t layer, std::uint32_t head, abi::KvKind kind);
  const Preset& preset() const { return state_.volume.preset(); }
  const char* engine() const { return state_.engine->name(); }
  const Superblock& layout() const { return state_.volume.superblock(); }

  // Faults from now on (storage/faults.hpp).
  void inject(const Fault& fault);
  // Disagreements between maps, spares and contents.
  std::vector<std::string> check();
  // What was damaged and put right when the drive was opened.
  const std::vector<std::string>& notices() const { return state_.volume.notices(); }

  // Keeps the latest `events` of device time from now on (trace.hpp); writes them and returns how many.
  void keep_trace(std::size_t events);
  std::size_t write_trace(std::ostream& out);

 private:
  void work();
  nvme::Reply dispatch(const nvme::Command* row, const nvme::Request& request);
  void forget_everything();

  mutable std::mutex mutex_;
  DriveState state_;
  std::atomic<bool> faults_armed_ = false;
};

}  // namespace kvdrive
