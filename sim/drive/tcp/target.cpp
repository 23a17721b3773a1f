// SPDX-License-Identifier: Apache-2.0
#include "tcp/target.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "tcp/connection.hpp"

namespace kvdrive::tcp {

Target::Target(nvme::Subsystem& subsystem, TargetOptions options, std::function<void()> wake)
    : subsystem_(subsystem), options_(std::move(options)), wake_(std::move(wake)) {
  if (options_.buffer_bytes < options_.max_transfer_bytes) {
    throw std::invalid_argument("the buffers of all connections take " + std::to_string(options_.max_transfer_bytes) +
                                " bytes at least: one command may need so many");
  }
}

std::optional<HostAccess> Target::access(const std::string& host_nqn) const {
  if (options_.hosts.empty()) return HostAccess{host_nqn};
  const auto found = std::ranges::find(options_.hosts, host_nqn, &HostAccess::nqn);
  return found == options_.hosts.end() ? std::nullopt : std::optional(*found);
}

std::shared_ptr<Association> Target::associate(bool discovery, const std::string& host_nqn,
                                               const std::array<std::uint8_t, 16>& host_id, const Address& address) {
  count([](TargetCounters& c) { ++c.associations; });
  if (discovery) {
    // The discovery subsystem numbers its controllers by itself: 1 to FFEFh.
    next_discovery_id_ = next_discovery_id_ == 0xffef ? 1 : next_discovery_id_ + 1;
    auto controller = std::make_unique<DiscoveryController>(next_discovery_id_, access(host_nqn) ? nqn() : "", address);
    auto association = std::make_shared<Association>(std::move(controller), host_nqn, host_id, true);
    std::erase_if(discoveries_, [](const auto& old) { return old.expired(); });
    discoveries_.push_back(association);
    return association;
  }
  nvme::ControllerOptions options;
  options.fabrics = true;
  options.host_nqn = host_nqn;
  options.host_id = host_id;
  options.max_io_queues = options_.max_io_queues;
  options.max_transfer_bytes = options_.max_transfer_bytes;
  options.in_capsule_bytes = kInCapsuleBytes;
  // The controller's number is known only after its construction.
  auto id = std::make_shared<std::atomic<std::uint16_t>>(0);
  auto controller = std::make_unique<nvme::Controller>(
      subsystem_, options,
      [this, id](nvme::QueueId queue, nvme::Response response) { post(*id, queue, std::move(response)); });
  *id = controller->id();
  auto association = std::make_shared<Association>(std::move(controller), host_nqn, host_id, false);
  share_buffers(*association);
  associations_[association->id()] = association;
  return association;
}

// A name that a host had to prove, or that a list allows, stands for one host, however often it connects. Without a
// list hosts name themselves as they like, so each association is a host.
void Target::share_buffers(Association& association) const {
  if (options_.hosts.empty()) return;
  for (const auto& [id, other] : associations_) {
    if (other->host_nqn == association.host_nqn) association.buffers = other->buffers;
  }
}

std::shared_ptr<Association> Target::find(std::uint16_t id) const {
  const auto found = associations_.find(id);
  return found == associations_.end() ? nullptr : found->second;
}

void Target::dissolve(const std::shared_ptr<Association>& association) {
  for (const auto& [queue, connection] : std::exchange(association->queues, {})) connection->leave();
  if (!association->discovery) associations_.erase(association->id());
}

void Target::post(std::uint16_t association, nvme::QueueId queue, nvme::Response response) {
  {
    const std::scoped_lock lock(mutex_);
    posted_.push_back({association, queue, std::move(response)});
  }
  wake_();
}

void Target::deliver_posted() {
  std::vector<Posted> posted;
  {
    const std::scoped_lock lock(mutex_);
    posted.swap(posted_);
  }
  for (Posted& one : posted) {
    const auto association = find(one.association);
    if (!association) continue;
    const auto connection = association->queues.find(one.queue);
    if (connection != association->queues.end()) connection->second->deliver(one.response);
  }
}

void Target::expire_keep_alives(Clock::time_point now) {
  std::vector<std::shared_ptr<Association>> all;
  all.reserve(associations_.size() + discoveries_.size());
  for (const auto& [id, association] : associations_) all.push_back(association);
  for (const auto& weak : discoveries_) {
    if (auto association = weak.lock()) all.push_back(std::move(association));
  }
  for (const auto& association : all) {
    if (!association->with([&](const auto& c) { return c.keep_alive_expired(now); })) continue;
    count([](TargetCounters& c) { ++c.keep_alive_expired; });
    dissolve(association);
  }
}

void Target::inject(TransportFault fault, std::uint32_t count) {
  const std::scoped_lock lock(mutex_);
  faults_.at(static_cast<std::size_t>(fault)) = count;
}

bool Target::take(TransportFault fault) {
  const std::scoped_lock lock(mutex_);
  std::uint32_t& left = faults_.at(static_cast<std::size_t>(fault));
  if (left == 0) return false;
  --left;
  return true;
}

TargetCounters Target::counters() const {
  const std::scoped_lock lock(mutex_);
  TargetCounters counters = counters_;
  counters.buffer_bytes = pool_.used_bytes();
  counters.buffer_peak_bytes = pool_.peak_bytes();
  counters.buffer_waits = pool_.waits();
  return counters;
}

}  // namespace kvdrive::tcp
