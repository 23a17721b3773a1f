// SPDX-License-Identifier: Apache-2.0
// The queue that all transfers with a disk share, and its policy, as Python objects.
#include <fcntl.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "binding/binding.hpp"
#include "binding/owned.hpp"
#include "storage/disk_queue.hpp"
#include "storage/transfer_schedule.hpp"

namespace nb = nanobind;

namespace kvdrive {
namespace {

// The queue of a disk, which exists as long as this object.
class Disk {
 public:
  explicit Disk(const std::filesystem::path& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) throw std::runtime_error("cannot open " + path.string() + ": " + std::strerror(errno));
    queue_ = DiskQueue::of(file);
    ::close(file);
  }
  DiskQueue& queue() { return *queue_; }

 private:
  std::shared_ptr<DiskQueue> queue_;
};

nb::dict disk_counters(Disk& self) {
  const DiskQueue::ByKind found = self.queue().counters();
  nb::dict kinds;
  for (std::size_t i = 0; i < kTransferKinds; ++i) {
    nb::dict kind;
    kind["transfers"] = found[i].transfers;
    kind["bytes"] = found[i].bytes;
    kind["waited"] = found[i].waited;
    kind["waited_ns"] = found[i].waited_ns;
    kind["most_waited_ns"] = found[i].most_waited_ns;
    kinds[kTransferNames[i]] = kind;
  }
  return kinds;
}

void add(TransferSchedule& self, const std::string& kind, std::uint64_t deadline, std::uint64_t bytes,
         std::uint64_t id) {
  const auto found = std::ranges::find(kTransferNames, kind);
  if (found == kTransferNames.end()) throw nb::value_error("no such kind of transfer");
  self.add({.kind = static_cast<TransferKind>(found - kTransferNames.begin()),
            .deadline = deadline,
            .bytes = bytes,
            .id = id});
}

std::optional<std::pair<std::string, std::uint64_t>> next(TransferSchedule& self) {
  const auto granted = self.next();
  if (!granted) return std::nullopt;
  return std::pair(std::string(kTransferNames[static_cast<std::size_t>(granted->kind)]), granted->id);
}

}  // namespace

void bind_disk(nb::module_& m) {
  nb::class_<TransferSchedule>(m, "TransferSchedule",
                               "Decides which waiting transfer goes next: the earliest deadline, unless a kind is "
                               "behind its share of the bytes.")
      .def(nb::init<>())
      .def("add", &add, nb::arg("kind"), nb::arg("deadline"), nb::arg("bytes"), nb::arg("id"),
           "Let a transfer wait: its kind as in `transfer_shares`, its deadline on any clock, a number of its own.")
      .def("next", &next, "Kind and number of the transfer that goes next, which waits no more; None if none waits.");
  m.def(
      "transfer_shares",
      [] {
        nb::dict shares;
        for (std::size_t i = 0; i < kTransferKinds; ++i) {
          shares[kTransferNames[i]] = static_cast<double>(kTransferShares[i]) / static_cast<double>(kWholeShare);
        }
        return shares;
      },
      "Kinds of transfers, and the share of the bytes that each gets at least while its transfers wait.");
  nb::class_<Owned<Disk>>(
      m, "DiskQueue",
      "The queue that all transfers of this process with one disk share, as far as they go around the "
      "page cache.")
      .def(
          "__init__",
          [](Owned<Disk>* self, const std::filesystem::path& path) { new (self) Owned<Disk>(std::in_place, path); },
          nb::arg("path"), "The disk that holds `path`. RuntimeError.")
      .def("counters", owned(&disk_counters),
           "By kind: transfers, bytes, transfers that waited for their turn, how long in all and at most (ns).")
      .def(
          "keep_trace", [](const Owned<Disk>& self, std::size_t events) { (*self).queue().keep_trace(events); },
          nb::arg("events"), "Keep the latest `events` transfers from now on; 0: none.")
      .def(
          "trace",
          [](const Owned<Disk>& self) {
            std::ostringstream text;
            (*self).queue().write_trace(text);
            return text.str();
          },
          nb::call_guard<nb::gil_scoped_release>(),
          "The kept transfers as Chrome trace events, which Perfetto loads; us of CLOCK_MONOTONIC.");
}

}  // namespace kvdrive
