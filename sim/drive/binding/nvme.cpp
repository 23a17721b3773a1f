// SPDX-License-Identifier: Apache-2.0
// The NVMe subsystem as Python objects: rings in this process, a server for other processes, and the host's side of
// both.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "binding/arrays.hpp"
#include "binding/binding.hpp"
#include "binding/owned.hpp"
#include "commands/subsystem.hpp"
#include "commands/table.hpp"
#include "nvme/ring_host.hpp"
#include "nvme/ring_link.hpp"

namespace nb = nanobind;

namespace kvdrive::nvme {
namespace {

abi::Sqe entry_of(const nb::bytes& sqe) {
  if (sqe.size() != abi::kSqeBytes) throw nb::value_error("a command has 64 bytes");
  abi::Sqe entry;
  std::memcpy(&entry, sqe.data(), sizeof entry);
  return entry;
}

// A host and its link to the drive, which is in this process or behind a socket.
class QueuePairs {
 public:
  QueuePairs(Subsystem& subsystem, std::uint64_t segment_bytes, HostOptions options, bool threaded)
      : served_(std::make_unique<ServedRings>(subsystem, segment_bytes, ControllerOptions{}, threaded)) {
    const auto poll = [rings = served_.get()] { return rings->poll_once(); };
    host_ = std::make_unique<RingHost>(served_->memory().bytes(), options, poll, threaded);
  }
  QueuePairs(const std::filesystem::path& path, std::uint64_t segment_bytes, HostOptions options)
      : connection_(std::make_unique<RingConnection>(path, segment_bytes)) {
    options.alive = [connection = connection_.get()] { return connection->alive(); };
    host_ = std::make_unique<RingHost>(connection_->memory().bytes(), std::move(options));
  }

  RingHost& host() { return *host_; }

 private:
  std::unique_ptr<ServedRings> served_;
  std::unique_ptr<RingConnection> connection_;
  std::unique_ptr<RingHost> host_;  // destroyed first
};

HostOptions host_options(std::uint16_t io_queues, std::uint32_t entries, bool prp, double timeout_seconds) {
  return {io_queues, entries, prp, std::chrono::milliseconds(static_cast<std::int64_t>(timeout_seconds * 1000)), {}};
}

nb::tuple to_python(HostCompletion&& completion) {
  return nb::make_tuple(nb::bytes(reinterpret_cast<const char*>(&completion.cqe), sizeof completion.cqe),
                        to_numpy(std::move(completion.data)));
}

std::span<const std::byte> bytes_of(const std::optional<Bytes>& data) {
  return data ? std::as_bytes(std::span(data->data(), data->size())) : std::span<const std::byte>();
}

RingHost::Ticket submit_entry(QueuePairs& pairs, std::uint16_t queue, const nb::bytes& sqe,
                              const std::optional<Bytes>& data, std::uint64_t room) {
  const abi::Sqe entry = entry_of(sqe);
  const auto bytes = bytes_of(data);
  nb::gil_scoped_release release;
  return pairs.host().submit(queue, entry, bytes, room);
}

nb::tuple wait_for(QueuePairs& pairs, RingHost::Ticket ticket) {
  HostCompletion completion;
  {
    nb::gil_scoped_release release;
    completion = pairs.host().wait(ticket);
  }
  return to_python(std::move(completion));
}

nb::tuple execute_entry(QueuePairs& pairs, std::uint16_t queue, const nb::bytes& sqe, const std::optional<Bytes>& data,
                        std::uint64_t room) {
  const abi::Sqe entry = entry_of(sqe);
  const auto bytes = bytes_of(data);
  HostCompletion completion;
  {
    nb::gil_scoped_release release;
    completion = pairs.host().execute(queue, entry, bytes, room);
  }
  return to_python(std::move(completion));
}

using QueryHalves = nb::ndarray<nb::ro, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Scores = nb::ndarray<const std::int32_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// The data of an ATTN_SUBMIT: q, the bitmap of valid tokens, and the inline tokens' scores and V, in whole beats.
OutBytes query_data(const QueryHalves& q, const std::optional<Bytes>& bitmap, const std::optional<Scores>& scores,
                    const std::optional<QueryHalves>& v) {
  constexpr std::size_t kBeat = abi::kBeatBytes;
  const auto beats = [](std::size_t bytes) { return (bytes + kBeat - 1) / kBeat * kBeat; };
  std::size_t row = 0, rows = 0;
  if (scores) {
    row = scores->shape(2) * sizeof(std::int32_t);
    rows = scores->shape(0) * scores->shape(1);
  }
  std::vector<std::byte> data(q.nbytes() + beats(bitmap ? bitmap->size() : 0) + rows * beats(row) +
                              (v ? v->nbytes() : 0));
  std::byte* to = data.data();
  const auto put = [&to](const void* from, std::size_t bytes, std::size_t room) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    to += room;
  };
  put(q.data(), q.nbytes(), q.nbytes());
  if (bitmap) put(bitmap->data(), bitmap->size(), beats(bitmap->size()));
  if (scores) {
    for (std::size_t i = 0; i < rows; ++i) put(scores->data() + i * scores->shape(2), row, beats(row));
  }
  if (v) put(v->data(), v->nbytes(), v->nbytes());
  return to_numpy(std::move(data));
}

// ATTN_SUBMIT and the ATTN_FETCH of its ticket. Returns the completion of the latter, or of the former if it failed.
nb::tuple ask(QueuePairs& pairs, std::uint16_t queue, const nb::bytes& sqe, const Bytes& data, std::uint32_t size) {
  const abi::Sqe entry = entry_of(sqe);
  const std::span bytes = std::as_bytes(std::span(data.data(), data.size()));
  HostCompletion completion;
  bool fetched = false;
  {
    nb::gil_scoped_release release;
    completion = pairs.host().execute(queue, entry, bytes, 0);
    fetched = (completion.cqe.status & 0xfffe) == 0;
    if (fetched) {
      abi::AttnFetch fetch{};
      fetch.opcode = abi::kAttnFetch;
      fetch.nsid = abi::kCp;
      fetch.ticket = static_cast<std::uint32_t>(completion.cqe.result);
      fetch.data_bytes = size;
      completion = pairs.host().execute(queue, std::bit_cast<abi::Sqe>(fetch), {}, size);
    }
  }
  return nb::make_tuple(fetched, nb::bytes(reinterpret_cast<const char*>(&completion.cqe), sizeof completion.cqe),
                        to_numpy(std::move(completion.data)));
}

// Returns the table of commands, one dict for each row.
nb::list commands() {
  constexpr std::array kDirections{"none", "to_controller", "to_host"};
  nb::list rows;
  for (const Command& row : all_commands()) {
    nb::dict entry;
    entry["name"] = std::string(row.name);
    entry["opcode"] = static_cast<std::uint32_t>(row.opcode);
    entry["nsid"] = row.nsid;
    entry["direction"] = kDirections.at(static_cast<std::size_t>(row.direction));
    entry["effects"] = row.effects;
    entry["broadcast"] = row.broadcast;
    rows.append(entry);
  }
  return rows;
}

}  // namespace
}  // namespace kvdrive::nvme

namespace kvdrive {

void bind_nvme(nb::module_& m) {
  using namespace nvme;
  m.def("commands", &commands,
        "The commands that the drive knows, a dict per row of its table: name, opcode, nsid (0: an admin command), "
        "direction of its data (none, to_controller, to_host), effects (bits of the effects log), broadcast (also for "
        "all namespaces at once).");
  m.def(
      "query_data", &query_data, nb::arg("q"), nb::arg("bitmap"), nb::arg("scores"), nb::arg("v"),
      "The data of an ATTN_SUBMIT: q float16 [heads, g, d]; bits of the valid tokens (uint8) or None; of inline tokens "
      "scores int32 [heads, g, n] and V float16 [heads, n, d], or None.");
  const nb::exception<RingError> ring_error(m, "RingError", PyExc_RuntimeError);
  nb::class_<Owned<Subsystem>>(m, "Subsystem", "A drive with its three namespaces, for controllers to share.")
      .def(
          "__init__",
          [](Owned<Subsystem>* self, const Owned<Drive>& drive, const std::string& serial, const std::string& nqn,
             std::uint64_t slm_bytes) {
            new (self) Owned<Subsystem>(std::in_place, *drive, SubsystemOptions{serial, nqn, slm_bytes});
          },
          nb::arg("drive"), nb::kw_only(), nb::arg("serial") = "", nb::arg("nqn") = "",
          nb::arg("slm_bytes") = SubsystemOptions{}.slm_bytes, nb::keep_alive<1, 2>())
      .def_prop_ro("nqn", owned(&Subsystem::nqn))
      .def_prop_ro("serial", owned(&Subsystem::serial));

  nb::class_<Owned<QueuePairs>>(m, "QueuePairs",
                                "A host's admin queue (0) and I/O queues (from 1 on), in memory shared with the drive.")
      .def(
          "__init__",
          [](Owned<QueuePairs>* self, const Owned<Subsystem>& subsystem, std::uint64_t segment_bytes,
             std::uint16_t io_queues, std::uint32_t entries, bool prp, bool threaded, double timeout) {
            nb::gil_scoped_release release;
            new (self) Owned<QueuePairs>(std::in_place, *subsystem, segment_bytes,
                                         host_options(io_queues, entries, prp, timeout), threaded);
          },
          nb::arg("subsystem"), nb::arg("segment_bytes") = std::uint64_t{1} << 30, nb::kw_only(),
          nb::arg("io_queues") = 1, nb::arg("entries") = 256, nb::arg("prp") = false, nb::arg("threaded") = true,
          nb::arg("timeout") = 60.0, nb::keep_alive<1, 2>(),
          "With `threaded` a thread works for the drive; else the drive works while somebody waits.")
      .def_static(
          "connect",
          [](const std::filesystem::path& path, std::uint64_t segment_bytes, std::uint16_t io_queues,
             std::uint32_t entries, bool prp, double timeout) {
            nb::gil_scoped_release release;
            return std::make_unique<Owned<QueuePairs>>(std::in_place, path, segment_bytes,
                                                       host_options(io_queues, entries, prp, timeout));
          },
          nb::arg("path"), nb::arg("segment_bytes") = std::uint64_t{1} << 30, nb::kw_only(), nb::arg("io_queues") = 1,
          nb::arg("entries") = 256, nb::arg("prp") = false, nb::arg("timeout") = 60.0,
          "To a drive that another process serves at the socket `path`.")
      .def("submit", owned(&submit_entry), nb::arg("queue"), nb::arg("sqe"), nb::arg("data") = nb::none(),
           nb::arg("room") = 0, "Queue a 64-byte command with its data (uint8), `room` bytes may come back -> ticket.")
      .def("wait", owned(&wait_for), nb::arg("ticket"), "Completion of a ticket, once: (16 bytes, data).")
      .def(
          "done", [](const Owned<QueuePairs>& pairs, RingHost::Ticket ticket) { return (*pairs).host().done(ticket); },
          nb::arg("ticket"), nb::call_guard<nb::gil_scoped_release>())
      .def("execute", owned(&execute_entry), nb::arg("queue"), nb::arg("sqe"), nb::arg("data") = nb::none(),
           nb::arg("room") = 0,
           "submit and wait. The calling thread does the work of a drive of this process, unless another one is at it.")
      .def(
          "ask", owned(&ask), nb::arg("queue"), nb::arg("sqe"), nb::arg("data"), nb::arg("size"),
          "execute an ATTN_SUBMIT and the ATTN_FETCH of its result of `size` bytes -> (whether the first succeeded, 16 "
          "bytes and data of the second or of a first that failed).")
      .def(
          "repeat",
          [](const Owned<QueuePairs>& pairs, std::uint16_t queue, const nb::bytes& sqe, std::uint64_t count) {
            const abi::Sqe entry = entry_of(sqe);
            nb::gil_scoped_release release;
            (*pairs).host().repeat(queue, entry, count);
          },
          nb::arg("queue"), nb::arg("sqe"), nb::arg("count"),
          "Execute a command without data `count` times, as many at once as fit; nobody else may use the queue.")
      .def_prop_ro("capabilities", [](const Owned<QueuePairs>& pairs) { return (*pairs).host().capabilities(); });

  nb::class_<Owned<RingServer>>(m, "RingServer", "Hands queue pairs to other processes, through a Unix socket.")
      .def(
          "__init__",
          [](Owned<RingServer>* self, const Owned<Subsystem>& subsystem, const std::filesystem::path& path,
             double greeting_timeout) {
            const auto milliseconds = static_cast<std::int64_t>(greeting_timeout * 1000);
            new (self) Owned<RingServer>(std::in_place, *subsystem, path, std::chrono::milliseconds(milliseconds));
          },
          nb::arg("subsystem"), nb::arg("path"), nb::kw_only(), nb::arg("greeting_timeout") = 5.0,
          nb::keep_alive<1, 2>(),
          "A connection that asks for nothing is closed after `greeting_timeout` seconds. RuntimeError where another "
          "drive is served at `path`.")
      .def("run", owned(&RingServer::run), nb::call_guard<nb::gil_scoped_release>(), "Serve until `stop`.")
      .def("stop", owned(&RingServer::stop))
      .def_prop_ro("hosts", owned(&RingServer::hosts));
}

}  // namespace kvdrive
