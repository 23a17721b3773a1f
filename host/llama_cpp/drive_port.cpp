// SPDX-License-Identifier: Apache-2.0
#include "drive_port.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

#include "commands/wire.hpp"
#include "drive.hpp"
#include "nvme/ring_host.hpp"
#include "nvme/ring_link.hpp"

namespace kvdrive::llama {
namespace {

constexpr std::uint64_t kStagedBytes = std::uint64_t{1} << 30;  // the most rows that wait in memory for whole groups
constexpr std::uint64_t kRunGroups = 16;  // groups of a head that are written together: 64 KiB, which disks read fast
constexpr std::uint64_t kSegmentBytes = std::uint64_t{1} << 32;  // of addresses; memory is taken when it is used
constexpr std::uint16_t kAdmin = 0, kIo = 1;                     // queues

VolumeOptions options_of(const Configuration& configuration) {
  VolumeOptions options;
  options.capacity_bytes = configuration.capacity_bytes;
  options.preset = std::filesystem::exists(configuration.drive) ? "" : "plain";
  options.cache_bytes = configuration.cache_bytes;
  options.run_groups = kRunGroups;
  options.staged_bytes = kStagedBytes;
  return options;
}

class OwnDrive final : public DrivePort {
 public:
  explicit OwnDrive(const Configuration& configuration)
      : drive_(configuration.drive, make_fast_engine(configuration.threads), options_of(configuration)) {}

  nvme::Reply execute(const abi::Sqe& command, std::span<const std::byte> data, std::uint64_t room) override {
    return drive_.execute({.command = command, .data = {.in = data, .room = room}});
  }
  std::vector<std::uint32_t> sessions() override { return drive_.sessions(); }
  DriveUsage usage() override {
    const DriveStats stats = drive_.stats();
    const ReadStats file = drive_.read_stats();
    return {.capacity_bytes = drive_.layout().capacity_units * abi::kPageBytes,
            .free_bytes = drive_.flash_stats().groups_available * abi::kPageBytes,
            .commands = stats.commands,
            .failed_commands = stats.failed_commands,
            .pages_read = stats.pages_read,
            .staged_bytes_read = stats.staged_bytes_read,
            .pages_written = stats.pages_written,
            .file_reads = file.reads.reads,
            .file_bytes_read = file.reads.bytes,
            .pieces_early = file.early,
            .pieces_unused = file.unused};
  }
  std::optional<std::uint64_t> bytes_read() override {
    const DriveStats stats = drive_.stats();
    return stats.pages_read * abi::kPageBytes + stats.staged_bytes_read;
  }
  std::string failure() const override { return drive_.failure(); }
  bool exclusive() const override { return true; }

 private:
  Drive drive_;
};

class ServedDrive final : public DrivePort {
 public:
  explicit ServedDrive(const std::filesystem::path& socket)
      : place_(socket.string()), connection_(socket, kSegmentBytes), host_(connection_.memory().bytes(), options()) {
    const auto identity = ask<nvme::IdentifyController>(identify());
    if (identity.abi_version != abi::kAbiVersion) {
      throw std::runtime_error("the drive at " + place_ +
                               " is of another version of kvdrive: install the same one for both");
    }
    capacity_bytes_ = identity.kv_capacity_bytes;
  }

  nvme::Reply execute(const abi::Sqe& command, std::span<const std::byte> data, std::uint64_t room) override {
    return execute_on(kIo, command, data, room);
  }

  // The log is the number of sessions, their numbers, then zeros.
  std::vector<std::uint32_t> sessions() override {
    constexpr std::uint32_t kAtOnce = 4096;  // bytes
    std::vector<std::uint32_t> numbers;
    std::uint64_t all = 1;
    for (std::uint64_t at = 0; at < 1 + all; at += kAtOnce / sizeof(std::uint32_t)) {
      const auto part = log_page(nvme::kLogSessions, kAtOnce, at * sizeof(std::uint32_t));
      for (std::size_t i = 0; i < part.size(); i += sizeof(std::uint32_t)) {
        numbers.push_back(nvme::read_as<std::uint32_t>(part, i));
      }
      all = numbers.front();
    }
    numbers.erase(numbers.begin());
    numbers.resize(all);
    return numbers;
  }

  DriveUsage usage() override {
    const auto page = log_page(nvme::kLogStatistics, sizeof(nvme::DriveStatistics) / 4 * 4, 0);
    nvme::DriveStatistics stats{};
    std::memcpy(&stats, page.data(), std::min(page.size(), sizeof stats));
    return {.capacity_bytes = capacity_bytes_,
            .free_bytes = stats.groups_available * abi::kPageBytes,
            .commands = stats.commands,
            .failed_commands = stats.failed_commands,
            .pages_read = stats.pages_read,
            .staged_bytes_read = stats.staged_bytes_read,
            .pages_written = stats.pages_written};
  }
  std::optional<std::uint64_t> bytes_read() override { return std::nullopt; }
  std::string failure() const override { return ""; }
  bool exclusive() const override { return false; }

 private:
  nvme::HostOptions options() const {
    nvme::HostOptions options;
    options.alive = [this] { return connection_.alive(); };
    return options;
  }

  nvme::Reply execute_on(std::uint16_t queue, const abi::Sqe& command, std::span<const std::byte> data,
                         std::uint64_t room) {
    constexpr std::uint32_t kStatusBits = (1U << 11) - 1;  // type and code
    nvme::HostCompletion done;
    try {
      done = host_.execute(queue, command, data, room);
    } catch (const std::exception& error) {
      throw std::runtime_error("the drive at " + place_ + " does not answer: " + error.what());
    }
    return {.status = static_cast<nvme::Status>(done.cqe.status >> abi::kCqeStatusShift & kStatusBits),
            .result = done.cqe.result,
            .data = std::move(done.data)};
  }

  static abi::Sqe identify() {
    abi::Sqe command{};
    command.opcode = nvme::kIdentify;
    command.cdw10 = nvme::kCnsController;
    return command;
  }

  std::vector<std::byte> log_page(nvme::LogPage page, std::uint32_t bytes, std::uint64_t offset) {
    const std::uint32_t words = bytes / 4 - 1;
    abi::Sqe command{};
    command.opcode = nvme::kGetLogPage;
    command.nsid = nvme::kNsidAll;
    command.cdw10 = page | (words & 0xffff) << 16;
    command.cdw11 = words >> 16;
    command.cdw12 = static_cast<std::uint32_t>(offset);
    command.cdw13 = static_cast<std::uint32_t>(offset >> 32);
    return ask(command, bytes);
  }

  std::vector<std::byte> ask(const abi::Sqe& command, std::uint64_t bytes) {
    nvme::Reply reply = execute_on(kAdmin, command, {}, bytes);
    if (reply.status != abi::kSuccess || reply.data.size() != bytes) {
      throw std::runtime_error("the drive at " + place_ +
                               " does not describe itself: serve it with `kvdrive drive serve`");
    }
    return std::move(reply.data);
  }

  template <typename Layout>
  Layout ask(const abi::Sqe& command) {
    return nvme::read_as<Layout>(ask(command, sizeof(Layout)));
  }

  const std::string place_;
  nvme::RingConnection connection_;
  nvme::RingHost host_;
  std::uint64_t capacity_bytes_ = 0;
};

}  // namespace

std::unique_ptr<DrivePort> open_drive(const Configuration& configuration) {
  if (configuration.served) return std::make_unique<ServedDrive>(configuration.drive);
  return std::make_unique<OwnDrive>(configuration);
}

}  // namespace kvdrive::llama
