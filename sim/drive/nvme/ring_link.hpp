// SPDX-License-Identifier: Apache-2.0
// Rings for a host in this process, and for hosts in other processes: a Unix socket hands out one segment per
// connection.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "nvme/ring_host.hpp"
#include "nvme/ring_segment.hpp"
#include "nvme/rings.hpp"

namespace kvdrive::nvme {

// A segment, its controller, and the thread that runs the controller.
class ServedRings {
 public:
  // With `threaded` false there is no thread; the caller must call `poll_once`.
  ServedRings(Subsystem& subsystem, std::uint64_t segment_bytes, ControllerOptions options, bool threaded);
  ~ServedRings();
  ServedRings(const ServedRings&) = delete;
  ServedRings& operator=(const ServedRings&) = delete;

  const RingMemory& memory() const { return memory_; }
  // Works for the drive in the calling thread; false if there is nothing to do, or if another thread is at work.
  bool poll_once() { return rings_.poll_once(); }

 private:
  RingMemory memory_;
  Rings rings_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Listens at `path`. When a connection ends, for whatever reason, its controller and its queues go with it. A
// connection that asks for nothing is closed after `greeting_timeout`, or earlier when another connection needs its
// place.
class RingServer {
 public:
  static constexpr std::size_t kMaxHosts = 64;

  // Throws std::runtime_error when the path cannot be bound or another server answers at it.
  RingServer(Subsystem& subsystem, std::filesystem::path path,
             std::chrono::milliseconds greeting_timeout = std::chrono::seconds(5));
  ~RingServer();
  RingServer(const RingServer&) = delete;
  RingServer& operator=(const RingServer&) = delete;

  // Serves until `stop`.
  void run();
  void stop();
  std::size_t hosts() const { return hosts_; }

 private:
  struct Host {
    int socket = -1;
    std::chrono::steady_clock::time_point since;
    std::unique_ptr<ServedRings> rings{};  // set by the first message
    bool silent() const { return !rings; }
  };

  bool greet(Host& host);
  void accept_one();
  // Closes connections that were silent for too long. Returns the milliseconds until the next one is due; -1 if there
  // is none.
  int close_silent();

  Subsystem& subsystem_;
  const std::filesystem::path path_;
  const std::chrono::milliseconds greeting_timeout_;
  int listener_ = -1, wake_ = -1;
  std::list<Host> connected_;
  std::atomic<std::size_t> hosts_ = 0;
};

// A host's connection to a RingServer. The segment lives as long as this object.
class RingConnection {
 public:
  // Throws std::runtime_error when no server answers, or with the server's reason for a refusal.
  RingConnection(const std::filesystem::path& path, std::uint64_t segment_bytes);
  ~RingConnection();
  RingConnection(const RingConnection&) = delete;
  RingConnection& operator=(const RingConnection&) = delete;

  const RingMemory& memory() const { return *memory_; }
  // True if the server still holds its end.
  bool alive() const;

 private:
  int socket_ = -1;
  std::unique_ptr<RingMemory> memory_;
};

}  // namespace kvdrive::nvme
