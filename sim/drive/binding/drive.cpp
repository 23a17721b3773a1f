// SPDX-License-Identifier: Apache-2.0
// The drive for Python: commands and completions are bytes, data are uint8 arrays.
#include "drive.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "binding/binding.hpp"
#include "crc32c.hpp"

namespace nb = nanobind;

namespace kvdrive {
namespace {

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutBytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;

std::span<const std::byte> as_bytes(const Bytes& array) {
  return {reinterpret_cast<const std::byte*>(array.data()), array.size()};
}

OutBytes to_numpy(std::vector<std::byte>&& data) {
  auto* owner = new std::vector<std::byte>(std::move(data));
  nb::capsule capsule(owner, [](void* p) noexcept { delete static_cast<std::vector<std::byte>*>(p); });
  return OutBytes(owner->data(), {owner->size()}, capsule);
}

void init_drive(Drive* self, const std::filesystem::path& path, const std::string& engine, int threads,
                std::uint64_t capacity_bytes) {
  new (self) Drive(path, make_engine(engine, threads), capacity_bytes);
}

nb::tuple submit(Drive& drive, const nb::bytes& sqe, const std::optional<Bytes>& data) {
  if (sqe.size() != abi::kSqeBytes) throw nb::value_error("a command has 64 bytes");
  const Drive::SqeView command(static_cast<const std::byte*>(sqe.data()), abi::kSqeBytes);
  Drive::Completion completion;
  {
    nb::gil_scoped_release release;
    completion = drive.submit(command, data ? as_bytes(*data) : std::span<const std::byte>());
  }
  return nb::make_tuple(nb::bytes(completion.cqe.data(), completion.cqe.size()), to_numpy(std::move(completion.data)));
}

nb::dict stats(const Drive& drive) {
  const DriveStats stats = drive.stats();
  nb::dict result;
  result["commands"] = stats.commands;
  result["failed_commands"] = stats.failed_commands;
  result["host_bytes_in"] = stats.host_bytes_in;
  result["host_bytes_out"] = stats.host_bytes_out;
  result["pages_written"] = stats.pages_written;
  result["pages_read"] = stats.pages_read;
  result["tail_bytes_read"] = stats.tail_bytes_read;
  result["attention_jobs"] = stats.attention_jobs;
  return result;
}

}  // namespace

void bind_drive(nb::module_& m) {
  nb::class_<Drive>(m, "Drive", "The software drive. Its backing file is recreated empty when it is opened.")
      .def("__init__", &init_drive, nb::arg("path"), nb::arg("engine") = "hls", nb::arg("threads") = 1,
           nb::arg("capacity_bytes") = std::uint64_t{1} << 30)
      .def("submit", &submit, nb::arg("sqe"), nb::arg("data") = nb::none(),
           "Execute a 64-byte command with its data (uint8) -> (16-byte completion, data to the host).")
      .def("stats", &stats, "Counters since the drive was opened, by name.");
  m.def(
      "crc32c", [](const Bytes& data) { return crc32c(as_bytes(data)); }, nb::arg("data"), "CRC-32C of a uint8 array.");
}

}  // namespace kvdrive
