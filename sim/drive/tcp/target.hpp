// SPDX-License-Identifier: Apache-2.0
// The state that the connections of one NVMe/TCP target share: the subsystem, allowed hosts, associations, limits,
// counters.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "commands/subsystem.hpp"
#include "nvme/controller.hpp"
#include "tcp/buffer_pool.hpp"
#include "tcp/dhchap.hpp"
#include "tcp/discovery.hpp"

namespace kvdrive::tcp {

class Connection;
using Clock = std::chrono::steady_clock;

struct HostAccess {
  std::string nqn;
  std::optional<DhchapSecret> secret{};             // the host must prove that it knows this secret
  std::optional<DhchapSecret> controller_secret{};  // the controller's proof, for hosts that ask for one
};

struct TargetOptions {
  std::vector<HostAccess> hosts{};  // empty: every host is allowed
  std::uint32_t max_connections = 256;
  std::uint16_t max_io_queues = 64;
  std::uint32_t max_transfer_bytes = 1 << 20;
  std::uint64_t buffer_bytes = 64 << 20;              // size of the pool for all connections; at least one transfer
  std::chrono::milliseconds connect_timeout{5000};    // longest time from the connection to Connect
  std::chrono::milliseconds progress_timeout{30000};  // longest pause of a PDU, a transfer or a reader
  std::chrono::milliseconds data_timeout{10000};  // longest time for data that were asked for (Connection::kLeastRate)
};

// Faults on the path to the host, for commands of I/O queues.
enum class TransportFault : std::uint8_t {
  kDropConnection,  // the connection drops before the command executes
  kCorruptDigest,   // the digest of data to the host is wrong
  kLoseCompletion,  // the completion of an executed command is not sent
  kNotReady,        // a command is refused; the host may retry
};
inline constexpr std::size_t kTransportFaults = 4;

// Counted since the target was made.
struct TargetCounters {
  std::uint64_t connections = 0, associations = 0, commands = 0;
  std::uint64_t in_capsule = 0;  // commands with their data in the capsule
  std::uint64_t ready_to_transfer = 0;
  std::uint64_t data_digest_errors = 0;
  std::uint64_t terminated = 0;  // connections that the drive ended with a termination request
  std::uint64_t timeouts = 0;    // connections that exceeded a time limit
  std::uint64_t keep_alive_expired = 0;
  std::uint64_t refused_hosts = 0, failed_authentications = 0;
  std::uint64_t buffer_bytes = 0, buffer_peak_bytes = 0;  // the pool's bytes: now, and the peak
  std::uint64_t buffer_waits = 0;                         // commands for which the pool had no room at once
};

// A host and its controller: the connection of the admin queue and those of the I/O queues.
class Association {
 public:
  using Controller = std::variant<std::unique_ptr<nvme::Controller>, std::unique_ptr<DiscoveryController>>;

  Association(Controller controller, std::string host_nqn, std::array<std::uint8_t, 16> host_id, bool discovery)
      : host_nqn(std::move(host_nqn)), host_id(host_id), discovery(discovery), controller_(std::move(controller)) {}

  // Calls `f` with the controller, which is of either kind.
  template <typename F>
  auto with(F&& f) const {
    return std::visit([&](const auto& controller) { return f(*controller); }, controller_);
  }
  std::uint16_t id() const {
    return with([](const auto& c) { return c.id(); });
  }

  const std::string host_nqn;
  const std::array<std::uint8_t, 16> host_id;
  const bool discovery;
  std::shared_ptr<BufferPool::Host> buffers = std::make_shared<BufferPool::Host>();  // of all its connections
  std::map<nvme::QueueId, Connection*> queues{};

 private:
  Controller controller_;
};

// All methods but `post` and `inject` must be called from one thread.
class Target {
 public:
  // `wake` is called from any thread after a completion was posted.
  Target(nvme::Subsystem& subsystem, TargetOptions options, std::function<void()> wake);

  const TargetOptions& options() const { return options_; }
  BufferPool& pool() { return pool_; }
  const std::string& nqn() const { return subsystem_.nqn(); }
  // The entry of a host that may use the drive. If every host may, an entry without secrets.
  std::optional<HostAccess> access(const std::string& host_nqn) const;

  std::shared_ptr<Association> associate(bool discovery, const std::string& host_nqn,
                                         const std::array<std::uint8_t, 16>& host_id, const Address& address);
  std::shared_ptr<Association> find(std::uint16_t id) const;
  // Ends the association: its connections will close.
  void dissolve(const std::shared_ptr<Association>& association);

  // Passes posted completions to their connections.
  void deliver_posted();
  void expire_keep_alives(Clock::time_point now);

  void inject(TransportFault fault, std::uint32_t count);
  // Counts an operation that this fault can affect. True if the operation must fail.
  bool take(TransportFault fault);

  TargetCounters counters() const;
  template <typename F>
  void count(F&& f) {
    const std::scoped_lock lock(mutex_);
    f(counters_);
  }

 private:
  void share_buffers(Association& association) const;
  void post(std::uint16_t association, nvme::QueueId queue, nvme::Response response);

  nvme::Subsystem& subsystem_;
  TargetOptions options_;
  BufferPool pool_{options_.buffer_bytes, options_.max_transfer_bytes, options_.max_connections};
  std::function<void()> wake_;
  std::uint16_t next_discovery_id_ = 0;
  std::map<std::uint16_t, std::shared_ptr<Association>> associations_;  // the drive's subsystem, by CNTLID
  std::vector<std::weak_ptr<Association>> discoveries_;

  mutable std::mutex mutex_;  // guards the members below
  struct Posted {
    std::uint16_t association;
    nvme::QueueId queue;
    nvme::Response response;
  };
  std::vector<Posted> posted_;
  std::array<std::uint32_t, kTransportFaults> faults_{};
  TargetCounters counters_;
};

}  // namespace kvdrive::tcp
