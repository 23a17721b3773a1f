// SPDX-License-Identifier: Apache-2.0
// The software drive: executes 64-byte NVMe commands on a KV cache that lives in a backing file.
//
// Commands run one at a time, in the order of submission, each to its end. Layouts and status codes: abi/abi.toml.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "attention.hpp"
#include "backing_file.hpp"
#include "common/abi.hpp"
#include "engine/engine.hpp"
#include "kv_store.hpp"
#include "page_store.hpp"

namespace kvdrive {

// Counters since the drive was opened. Host bytes count commands and completions as well as data.
struct DriveStats {
  std::uint64_t commands = 0;
  std::uint64_t failed_commands = 0;
  std::uint64_t host_bytes_in = 0;
  std::uint64_t host_bytes_out = 0;
  std::uint64_t pages_written = 0;
  std::uint64_t pages_read = 0;
  std::uint64_t tail_bytes_read = 0;  // K and V taken from drive DRAM
  std::uint64_t attention_jobs = 0;
};

class Drive {
 public:
  using SqeView = std::span<const std::byte, abi::kSqeBytes>;

  struct Completion {
    std::array<std::byte, abi::kCqeBytes> cqe;
    std::vector<std::byte> data;
  };

  // Results of ATTN_SUBMIT that wait for their ATTN_FETCH.
  static constexpr std::size_t kMaxTickets = 256;

  // Throws std::runtime_error when `path` cannot be used; `capacity_bytes` is rounded down to whole pages.
  Drive(const std::filesystem::path& path, std::unique_ptr<Engine> engine, std::uint64_t capacity_bytes);

  // Never throws for what a command says; may be called from several threads.
  Completion submit(SqeView sqe, std::span<const std::byte> data);

  DriveStats stats() const;

 private:
  struct Reply {
    abi::NvmeStatus status = abi::kSuccess;
    std::uint64_t result = 0;
    std::vector<std::byte> data{};
  };

  Reply execute(const abi::Sqe& command, std::span<const std::byte> data);
  Reply append(const abi::KvAppend& command, std::span<const std::byte> data);
  Reply submit_attention(const abi::AttnSubmit& command, std::span<const std::byte> data);
  Reply fetch_attention(const abi::AttnFetch& command);

  mutable std::mutex mutex_;
  BackingFile file_;
  PageStore pages_{file_};
  KvStore store_{pages_};
  std::unique_ptr<Engine> engine_;
  AttentionUnit attention_{*engine_, store_, pages_};
  std::unordered_map<std::uint32_t, AttentionOutcome> tickets_;
  std::uint32_t last_ticket_ = 0;
  DriveStats counters_;
};

}  // namespace kvdrive
