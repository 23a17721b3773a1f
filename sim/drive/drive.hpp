// SPDX-License-Identifier: Apache-2.0
// The software drive executes 64-byte NVMe commands on a KV cache that is stored in a backing file.
//
// Commands run one at a time, in the order of submission, each to its end. abi/abi.toml defines layouts and status
// codes.
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

// Counters of the drive's inner parts since it was opened.
struct FlashStats {
  FtlCounters ftl;
  FilterCounters filter;
  BandTable::Wear wear;
  EccCounters ecc;
  Ns device_ns = 0;
  std::uint64_t engine_cycles = 0;
  std::uint64_t memory_bytes = 0;  // bytes written to the engine's memory
  Ns host_link_busy_ns = 0;
  std::uint64_t journal_bytes = 0;
  std::uint64_t file_writes = 0;
  std::uint64_t pages_started = 0;  // flash pages that RETRIEVE_AHEAD asked for
  std::uint64_t groups_live = 0;
  std::uint64_t groups_available = 0;
  std::uint64_t groups_queued = 0;
  std::uint64_t staged_bytes = 0;
  std::uint64_t metadata_bytes = 0;
  std::uint64_t values = 0;
  std::uint64_t value_bytes = 0;   // of keys and values
  std::uint32_t run_groups = 0;    // present value of KvStore::run_groups
  KeptPages::Counters hot, index;  // pages that policy groups found in drive memory, or not
  std::uint64_t hot_bytes = 0, index_bytes = 0;
  Limits limits;
  std::vector<ChannelCounters> channels;
};

// K or V of one head of a session.
struct HeadSummary {
  std::uint32_t layer = 0, head = 0;
  abi::KvKind kind = abi::kKeys;
  std::uint32_t tokens = 0;
  RowLayout layout{};
  // K with a 2-bit index: tokens in it, its exponent, and the channels whose range was clamped.
  std::uint32_t indexed = 0, index_exponent = 0;
  std::uint64_t index_saturated = 0;
};

// Reads of the backing file around the page cache. A drive with a flash model has none.
struct ReadStats {
  DirectReads::Counters reads;
  bool around_cache = false;
  bool asynchronous = false;
  std::uint64_t early = 0, unused = 0;  // pieces that were read for an expected query, and those of them in vain
};

// Converts a status (type << 8 | code) to the status word of a completion with phase bit 0.
std::uint16_t status_word(std::uint32_t status);

class Drive {
 public:
  using SqeView = std::span<const std::byte, abi::kSqeBytes>;

  struct Completion {
    std::array<std::byte, abi::kCqeBytes> cqe;
    std::vector<std::byte> data;
    Ns done;  // device time
  };

  // Throws std::runtime_error if `path` cannot be used.
  Drive(const std::filesystem::path& path, std::unique_ptr<Engine> engine, const VolumeOptions& options);

  // Executes a command of namespace 1, 3 or 4. No content of a command makes it throw. May be called from several
  // threads. In device time the command arrives when the previous one is done.
  nvme::Reply execute(const nvme::Request& request);
  // Like `execute`, with the bytes of the submission entry.
  Completion submit(SqeView sqe, std::span<const std::byte> data);

  // Returns the length of ATTN_SUBMIT's data; nothing if the head does not exist.
  std::optional<std::uint64_t> payload_bytes(const abi::AttnSubmit& command) const;
  // Runs a job in memory that the host filled (subsystem local memory). Returns the engine's status word.
  std::uint32_t run_job(std::span<std::byte> memory, std::uint64_t job, std::uint32_t queue);
  // The host of a controller has gone or has reset it: its results make room for others when there are too many, and
  // values of which it sent only a part are dropped.
  void abandon(std::uint16_t controller);
  // Makes everything so far durable, like a FLUSH from the host.
  abi::NvmeStatus flush();
  // Switches a program of namespace 3 on or off (nvme::Program). All are active at first.
  void activate_program(std::uint32_t program, bool active);
  bool program_active(std::uint32_t program) const { return (state_.inactive_programs >> program & 1) == 0; }
  // Drops the contents of a namespace, or of all of them (kNsidAll), durably.
  abi::NvmeStatus format(std::uint32_t nsid);
  // Drops all sessions, blocks and values and erases their flash. Returns kInternalError if the file cannot be written;
  // bytes may then remain in it, but no session, block or key refers to them.
  abi::NvmeStatus sanitize();
  std::uint64_t blocks_used() const;
  // Counts an operation that an injected fault may affect. True if it must fail.
  bool strikes(FaultKind kind);

  Health& health() { return state_.volume.health(); }
  DriveStats stats() const;
  FlashStats flash_stats() const;
  ReadStats read_stats() const;
  std::vector<std::uint32_t> sessions() const;
  // Lists the contents of a session by layer, head and kind; empty for an unknown session.
  std::vector<HeadSummary> heads(std::uint32_t session) const;
  // Returns all rows of K or V of a head; empty if there are none. Throws std::runtime_error if a page is lost.
  std::vector<std::byte> rows(std::uint32_t session, std::uint32_t layer, std::uint32_t head, abi::KvKind kind);
  const Preset& preset() const { return state_.volume.preset(); }
  const char* engine() const { return state_.engine->name(); }
  std::vector<std::string> engine_notices() const { return state_.engine->notices(); }
  std::uint64_t exact_sums() const { return state_.engine->exact_sums(); }
  const Superblock& layout() const { return state_.volume.superblock(); }

  // Injects a fault into later operations (storage/faults.hpp).
  void inject(const Fault& fault);
  // Returns one sentence for each disagreement between maps, spares and contents.
  std::vector<std::string> check();
  // One sentence for each damage that was repaired when the drive was opened.
  const std::vector<std::string>& notices() const { return state_.volume.notices(); }

  // Why the latest command that ended with kInternalError failed, in words of the system; empty where nothing is known.
  std::string failure() const;

  // `keep_trace` records the latest `events` events of device time (trace.hpp). `write_trace` writes them and returns
  // their number.
  void keep_trace(std::size_t events);
  std::size_t write_trace(std::ostream& out);

 private:
  void work();
  nvme::Reply dispatch(const nvme::Command* row, const nvme::Request& request);
  void forget_sessions_and_blocks();
  void forget_values();

  mutable std::mutex mutex_;
  DriveState state_;
  std::string failure_;
  std::atomic<bool> faults_armed_ = false;
};

}  // namespace kvdrive
