// SPDX-License-Identifier: Apache-2.0
// The NVMe/TCP target as a Python object.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "binding/binding.hpp"
#include "binding/owned.hpp"
#include "tcp/server.hpp"

namespace nb = nanobind;

namespace kvdrive {
namespace {

using tcp::DhchapSecret;

// NQN, secret of the host, secret of the controller.
using HostEntry = std::tuple<std::string, std::optional<std::string>, std::optional<std::string>>;

std::optional<DhchapSecret> secret_of(const std::optional<std::string>& text) {
  return text ? std::optional(DhchapSecret::parse(*text)) : std::nullopt;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  if (!(seconds > 0) || seconds > 1e6) throw nb::value_error("a timeout is a positive number of seconds");
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
}

void init_server(Owned<tcp::Server>* self, const Owned<nvme::Subsystem>& subsystem, const std::string& host,
                 std::uint16_t port, const std::vector<HostEntry>& hosts, double connect_timeout,
                 double progress_timeout, double data_timeout, std::uint32_t max_connections,
                 std::uint64_t buffer_bytes) {
  tcp::TargetOptions options;
  for (const auto& [nqn, secret, controller_secret] : hosts) {
    options.hosts.push_back({nqn, secret_of(secret), secret_of(controller_secret)});
  }
  options.connect_timeout = milliseconds_of(connect_timeout);
  options.progress_timeout = milliseconds_of(progress_timeout);
  options.data_timeout = milliseconds_of(data_timeout);
  options.max_connections = max_connections;
  options.buffer_bytes = buffer_bytes;
  new (self) Owned<tcp::Server>(std::in_place, *subsystem, host, port, std::move(options));
}

void inject_transport_fault(tcp::Server& server, const std::string& kind, std::uint32_t count) {
  constexpr std::array kNames{"drop_connection", "corrupt_digest", "lose_completion", "not_ready"};
  static_assert(kNames.size() == tcp::kTransportFaults);
  const auto found = std::ranges::find(kNames, kind);
  if (found == kNames.end()) throw nb::value_error(("unknown transport fault '" + kind + "'").c_str());
  server.target().inject(static_cast<tcp::TransportFault>(found - kNames.begin()), count);
}

nb::dict target_counters(tcp::Server& server) {
  const tcp::TargetCounters counters = server.target().counters();
  nb::dict result;
  result["connections"] = counters.connections;
  result["associations"] = counters.associations;
  result["commands"] = counters.commands;
  result["in_capsule"] = counters.in_capsule;
  result["ready_to_transfer"] = counters.ready_to_transfer;
  result["data_digest_errors"] = counters.data_digest_errors;
  result["terminated"] = counters.terminated;
  result["timeouts"] = counters.timeouts;
  result["keep_alive_expired"] = counters.keep_alive_expired;
  result["refused_hosts"] = counters.refused_hosts;
  result["failed_authentications"] = counters.failed_authentications;
  result["buffer_bytes"] = counters.buffer_bytes;
  result["buffer_peak_bytes"] = counters.buffer_peak_bytes;
  result["buffer_waits"] = counters.buffer_waits;
  return result;
}

}  // namespace

void bind_tcp(nb::module_& m) {
  nb::class_<Owned<tcp::Server>>(m, "TcpServer",
                                 "An NVMe/TCP target in a thread of its own, from now until it is dropped.")
      .def("__init__", &init_server, nb::keep_alive<1, 2>(), nb::arg("subsystem"), nb::arg("host") = "127.0.0.1",
           nb::arg("port") = 0, nb::kw_only(), nb::arg("hosts") = std::vector<HostEntry>(),
           nb::arg("connect_timeout") = 5.0, nb::arg("progress_timeout") = 30.0, nb::arg("data_timeout") = 10.0,
           nb::arg("max_connections") = 256, nb::arg("buffer_bytes") = tcp::TargetOptions{}.buffer_bytes,
           "Hosts: (NQN, DHHC-1 secret or None, controller's DHHC-1 secret or None); without any, every host may come. "
           "ValueError for a bad address or secret, and where an address other than loopback would be open to hosts "
           "without a secret.")
      .def_prop_ro("port", owned(&tcp::Server::port))
      .def("counters", owned(&target_counters), "Events since the target was made, by name.")
      .def("inject", owned(&inject_transport_fault), nb::arg("kind"), nb::arg("count") = 1,
           "The next `count` commands of I/O queues fail on the way: drop_connection, corrupt_digest, lose_completion, "
           "not_ready; 0 ends it.");
}

}  // namespace kvdrive
