// SPDX-License-Identifier: Apache-2.0
// Linux' NVMe passthrough as a Python object.
#include "nvme/passthrough.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <cstring>
#include <utility>
#include <vector>

#include "binding/binding.hpp"
#include "binding/owned.hpp"

namespace nb = nanobind;

namespace kvdrive {
namespace {

using nvme::PassthroughCommand;
using nvme::PassthroughRing;

PassthroughCommand command_of(nb::handle item) {
  const auto [file, fields] = nb::cast<std::pair<int, nb::bytes>>(item);
  PassthroughCommand command{.file = file, .command = {}};
  if (fields.size() != sizeof command.command) throw nb::value_error("a command is a struct nvme_uring_cmd");
  std::memcpy(&command.command, fields.data(), sizeof command.command);
  return command;
}

nb::list execute_items(PassthroughRing& ring, const nb::list& items) {
  std::vector<PassthroughCommand> commands;
  for (nb::handle item : items) commands.push_back(command_of(item));
  std::vector<nvme::PassthroughResult> results;
  {
    nb::gil_scoped_release release;
    results = ring.execute(commands);
  }
  nb::list answers;
  for (const auto& [status, result] : results) answers.append(nb::make_tuple(status, result));
  return answers;
}

}  // namespace

void bind_passthrough(nb::module_& m) {
  nb::class_<Owned<PassthroughRing>>(m, "PassthroughRing",
                                     "An io_uring for commands of NVMe devices; one thread may use it.")
      .def(
          "__init__",
          [](Owned<PassthroughRing>* self, unsigned depth) { new (self) Owned<PassthroughRing>(std::in_place, depth); },
          nb::arg("depth"), "At most `depth` commands are in flight.")
      .def_prop_ro("error", owned(&PassthroughRing::error),
                   "Why the kernel has no such ring: an errno; 0 where it has one.")
      .def("execute", owned(&execute_items), nb::arg("commands"),
           "Execute commands, each (file, struct nvme_uring_cmd). Their data must stay in place. Returns (status, "
           "result) for each: the completion's status and 64-bit result, or a negative errno.");
}

}  // namespace kvdrive
