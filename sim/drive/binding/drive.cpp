// SPDX-License-Identifier: Apache-2.0
// The drive as a Python object. Commands and completions are bytes, data are uint8 arrays.
#include "drive.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "binding/arrays.hpp"
#include "binding/binding.hpp"
#include "binding/owned.hpp"
#include "crc32c.hpp"
#include "nand/preset.hpp"
#include "nand/validation.hpp"

namespace nb = nanobind;

namespace kvdrive {
namespace {

std::span<const std::byte> as_bytes(const Bytes& array) {
  return {reinterpret_cast<const std::byte*>(array.data()), array.size()};
}

void init_drive(Owned<Drive>* self, const std::filesystem::path& path, const std::string& engine, int threads,
                std::uint64_t capacity_bytes, const std::string& preset, bool format, std::uint32_t pages_per_block,
                std::uint64_t snapshot_bytes, bool payload, std::optional<std::uint64_t> staged_bytes,
                std::optional<std::uint64_t> session_bytes, std::optional<std::uint64_t> metadata_bytes,
                std::optional<std::uint64_t> run_groups, std::uint64_t cache_bytes, std::uint32_t worn_erases,
                bool read_only, bool salvage, std::uint64_t hot_bytes, std::uint64_t index_bytes) {
  VolumeOptions options;
  options.capacity_bytes = capacity_bytes;
  options.preset = preset;
  options.format = format;
  options.pages_per_block = pages_per_block;
  options.snapshot_bytes = snapshot_bytes;
  options.payload = payload;
  options.cache_bytes = cache_bytes;
  options.staged_bytes = staged_bytes;
  if (session_bytes) {
    options.session_groups = *session_bytes / abi::kPageBytes;
    if (*session_bytes > 0 && *options.session_groups == 0) {
      throw std::runtime_error("a session's budget is a page of " + std::to_string(abi::kPageBytes) +
                               " bytes at least, or 0 for no limit");
    }
  }
  options.metadata_bytes = metadata_bytes;
  options.run_groups = run_groups;
  options.worn_erases = worn_erases;
  options.read_only = read_only;
  options.salvage = salvage;
  options.hot_bytes = hot_bytes;
  options.index_bytes = index_bytes;
  new (self) Owned<Drive>(std::in_place, path, make_engine(engine, threads), options);
}

void inject_fault(Drive& drive, const std::string& kind, std::uint64_t after, std::uint64_t count,
                  std::uint64_t argument) {
  constexpr std::array kNames{"read_uncorrectable", "program_fail",    "erase_fail",  "slow_die", "power_cut", "full",
                              "lost_completion",    "command_timeout", "engine_hang", "disk_full"};
  const auto found = std::ranges::find(kNames, kind);
  if (found == kNames.end()) {
    std::string names;
    for (const char* name : kNames) names += (names.empty() ? "" : ", ") + std::string(name);
    throw nb::value_error(("unknown fault '" + kind + "': choose one of " + names).c_str());
  }
  drive.inject({static_cast<FaultKind>(found - kNames.begin()), after, count, argument});
}

nb::tuple submit_alone(Drive& drive, const nb::bytes& sqe, const std::optional<Bytes>& data) {
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
  result["staged_bytes_read"] = stats.staged_bytes_read;
  result["attention_jobs"] = stats.attention_jobs;
  return result;
}

nb::dict flash_stats(const Drive& drive) {
  const FlashStats stats = drive.flash_stats();
  nb::dict result;
  result["device_ns"] = stats.device_ns;
  result["groups_written"] = stats.ftl.groups_written;
  result["groups_moved"] = stats.ftl.groups_moved;
  result["groups_levelled"] = stats.ftl.groups_levelled;
  result["units_programmed"] = stats.ftl.units_programmed;
  result["groups_read"] = stats.ftl.groups_read;
  result["groups_reread"] = stats.ftl.groups_reread;
  result["pages_sensed"] = stats.ftl.pages_sensed;
  result["pages_started"] = stats.pages_started;
  result["host_link_busy_ns"] = stats.host_link_busy_ns;
  result["reads_retried"] = stats.ecc.reads_retried;
  result["sensings_repeated"] = stats.ecc.sensings;
  result["queued_reads"] = stats.ftl.queued_reads;
  result["program_failures"] = stats.ftl.program_failures;
  result["erase_failures"] = stats.ftl.erase_failures;
  result["lost_groups"] = stats.ftl.lost_groups;
  result["hot_hits"] = stats.hot.hits;
  result["hot_misses"] = stats.hot.misses;
  result["hot_bytes"] = stats.hot_bytes;
  result["index_hits"] = stats.index.hits;
  result["index_misses"] = stats.index.misses;
  result["index_bytes"] = stats.index_bytes;
  result["filter_pages"] = stats.filter.pages;
  result["filter_pages_left"] = stats.filter.pages_left;
  result["filter_rows_kept"] = stats.filter.rows_kept;
  result["filter_rows_dropped"] = stats.filter.rows_dropped;
  result["filter_bytes"] = stats.filter.bytes_kept;
  result["engine_cycles"] = stats.engine_cycles;
  result["memory_bytes"] = stats.memory_bytes;
  result["journal_bytes"] = stats.journal_bytes;
  result["file_writes"] = stats.file_writes;
  result["groups_live"] = stats.groups_live;
  result["groups_available"] = stats.groups_available;
  result["groups_queued"] = stats.groups_queued;
  result["block_reads"] = drive.stats().block_reads;
  result["block_writes"] = drive.stats().block_writes;
  result["values"] = stats.values;
  result["value_bytes"] = stats.value_bytes;
  result["staged_bytes"] = stats.staged_bytes;
  result["staged_budget"] = stats.limits.staged_bytes;
  result["metadata_bytes"] = stats.metadata_bytes;
  result["metadata_budget"] = stats.limits.metadata_bytes;
  result["session_groups"] = stats.limits.session_groups;
  result["run_groups"] = stats.run_groups;
  result["erases"] = stats.wear.erases;
  result["least_erases"] = stats.wear.least;
  result["most_erases"] = stats.wear.most;
  result["bad_blocks"] = stats.wear.bad;
  nb::list bytes, busy;
  for (const ChannelCounters& channel : stats.channels) {
    bytes.append(channel.bytes);
    busy.append(channel.busy_ns);
  }
  result["channel_bytes"] = bytes;
  result["channel_busy_ns"] = busy;
  return result;
}

nb::list heads(const Drive& drive, std::uint32_t session) {
  nb::list found;
  for (const HeadSummary& head : drive.heads(session)) {
    nb::dict entry;
    entry["layer"] = head.layer;
    entry["head"] = head.head;
    entry["kind"] = static_cast<std::uint32_t>(head.kind);
    entry["tokens"] = head.tokens;
    entry["row_bytes"] = head.layout.row_bytes;
    entry["format"] = static_cast<std::uint32_t>(head.layout.format);
    entry["sparse"] = head.layout.sparse;
    entry["indexed"] = head.indexed;
    entry["index_exponent"] = head.index_exponent;
    entry["index_saturated"] = head.index_saturated;
    found.append(entry);
  }
  return found;
}

std::size_t write_trace(Drive& drive, const std::filesystem::path& path) {
  std::ofstream out(path);
  const std::size_t events = drive.write_trace(out);
  out.close();
  if (!out) throw std::runtime_error("cannot write the trace to " + path.string());
  return events;
}

nb::dict read_stats(const Drive& drive) {
  const ReadStats stats = drive.read_stats();
  nb::dict result, sizes;
  result["reads"] = stats.reads.reads;
  result["bytes"] = stats.reads.bytes;
  for (const auto& [bytes, count] : stats.reads.sizes) sizes[nb::int_(bytes)] = count;
  result["sizes"] = sizes;
  result["around_cache"] = stats.around_cache;
  result["asynchronous"] = stats.asynchronous;
  result["early"] = stats.early;
  result["unused"] = stats.unused;
  return result;
}

nb::dict layout(const Drive& drive) {
  const Superblock& superblock = drive.layout();
  const Geometry& g = superblock.geometry;
  nb::dict result;
  result["preset"] = std::string(drive.preset().name);
  result["capacity_bytes"] = superblock.capacity_units * abi::kPageBytes;
  result["flash_bytes"] = g.units() * abi::kPageBytes;
  result["file_bytes"] = superblock.file_bytes();
  result["unit_offset"] = superblock.unit_offset();
  result["spare_offset"] = superblock.spare_offset();
  result["journal_half_bytes"] = superblock.journal_half_bytes;
  result["channels"] = g.channels;
  result["dies"] = g.dies();
  result["blocks_per_die"] = g.blocks_per_die;
  result["units_per_program"] = g.units_per_program();
  result["units_per_block"] = g.units_per_block();
  return result;
}

nb::list timing_cases() {
  nb::list cases;
  for (const ValidationCase& one : validate_timing()) {
    nb::dict entry;
    entry["preset"] = one.preset;
    entry["case"] = one.name;
    entry["unit"] = one.unit;
    entry["reference"] = one.reference;
    entry["ours"] = one.ours;
    entry["error_percent"] = one.error_percent();
    cases.append(entry);
  }
  return cases;
}

}  // namespace

void bind_drive(nb::module_& m) {
  nb::class_<Owned<Drive>>(m, "Drive", "The software drive: mounts its backing file, or makes it where there is none.")
      .def(
          "__init__", &init_drive, nb::arg("path"), nb::arg("engine") = "hls", nb::arg("threads") = 1,
          nb::arg("capacity_bytes") = std::uint64_t{1} << 30, nb::kw_only(), nb::arg("preset") = "",
          nb::arg("format") = false, nb::arg("pages_per_block") = 0,
          nb::arg("snapshot_bytes") = VolumeOptions{}.snapshot_bytes, nb::arg("payload") = true,
          nb::arg("staged_bytes") = nb::none(), nb::arg("session_bytes") = nb::none(),
          nb::arg("metadata_bytes") = nb::none(), nb::arg("run_groups") = nb::none(),
          nb::arg("cache_bytes") = VolumeOptions{}.cache_bytes, nb::arg("worn_erases") = 0,
          nb::arg("read_only") = false, nb::arg("salvage") = false, nb::arg("hot_bytes") = 0,
          nb::arg("index_bytes") = 0,
          "Capacity, preset, pages per block and payload count for a new or formatted drive. payload=False: no "
          "contents, "
          "appends need no data, only times and counts are real. Stored on the drive until others are given: "
          "staged_bytes, "
          "the budget for rows in drive memory; session_bytes, a session's share of the flash, 0: all of it; "
          "metadata_bytes, the budget for maps; run_groups, groups of a head that go to flash together, 0: as that "
          "budget asks for. For this opening, of the preset 'plain': cache_bytes, K and V up to which reads go through "
          "the page cache. worn_erases: that the blocks of a new drive have behind them. format=True forgets what an "
          "existing drive holds and takes an empty file; nothing else formats. read_only: opens what is there and "
          "never writes; commands that would are refused as write-protected. salvage: of a damaged drive, keeps what "
          "verifies and forgets the rest, durably; notices() says what. hot_bytes, index_bytes: memory for pages of K "
          "and V that policy groups has read, and for its index, for this opening.")
      .def("submit", owned(&submit_alone), nb::arg("sqe"), nb::arg("data") = nb::none(),
           "Execute a 64-byte command with its data (uint8) -> (16-byte completion, data to the host).")
      .def("stats", owned(&stats), "Counters since the drive was opened, by name.")
      .def("flash_stats", owned(&flash_stats), "What happened inside since the drive was opened, by name.")
      .def("read_stats", owned(&read_stats),
           "Reads around the page cache since the drive was opened: number, bytes, number by size; whether the file "
           "system really goes around it and the kernel reads while the caller works. Zeros with a flash model.")
      .def("layout", owned(&layout), "Sizes of the flash and of the backing file, by name.")
      .def("sessions", owned(&Drive::sessions), "Numbers of the sessions on the drive.")
      .def(
          "heads", owned(&heads), nb::arg("session"),
          "What a session holds, a dict for K or V of each head: layer, head, kind, tokens, row_bytes, format, sparse; "
          "of K with a 2-bit index: tokens in it, its exponent, and channels whose range was clamped.")
      .def(
          "rows",
          [](const Owned<Drive>& drive, std::uint32_t session, std::uint32_t layer, std::uint32_t head,
             std::uint32_t kind) {
            return to_numpy((*drive).rows(session, layer, head, static_cast<abi::KvKind>(kind)));
          },
          nb::arg("session"), nb::arg("layer"), nb::arg("head"), nb::arg("kind"),
          "All rows of K or V of a head as bytes; empty where there are none. RuntimeError when a page is lost.")
      .def(
          "inject", owned(&inject_fault), nb::arg("kind"), nb::arg("after") = 0, nb::arg("count") = 1,
          nb::arg("argument") = 0,
          "From now on, after `after` good operations of its kind, `count` fail. The flash: read_uncorrectable (status "
          "281h; with an `argument` each page is lost with that probability in 1e-9, drawn from the seed `after`), "
          "program_fail and erase_fail (other blocks take over), full (capacity exceeded). slow_die: die `argument` "
          "takes `count` percent of its time. The controller: lost_completion (executed) and command_timeout (not "
          "executed) end with Abort, a reset or the host's deadline; engine_hang: ATTN_SUBMIT is an internal error "
          "after "
          "a second of device time. disk_full: writes to the file find no room under it. power_cut: file write number "
          "`after` is the last, then everything fails; of what "
          "was not synced survives, by `argument`: 0 all but that write, 1 half of it too, even ones a choice of "
          "writes, "
          "odd ones of sectors. ValueError for an unknown kind.")
      .def("keep_trace", owned(&Drive::keep_trace), nb::arg("events"),
           "Keep the latest `events` events of device time from now on; 0: none.")
      .def("write_trace", owned(&write_trace), nb::arg("path"), nb::call_guard<nb::gil_scoped_release>(),
           "Write them as Chrome trace events, which Perfetto loads -> their number.")
      .def(
          "trace",
          [](const Owned<Drive>& drive) {
            std::ostringstream text;
            (*drive).write_trace(text);
            return text.str();
          },
          nb::call_guard<nb::gil_scoped_release>(), "The same as text.")
      .def("check", owned(&Drive::check), nb::call_guard<nb::gil_scoped_release>(),
           "Compare maps, spares and contents: one sentence per disagreement.")
      .def("failure", owned(&Drive::failure), "Why the latest INTERNAL_ERROR came about, where known.")
      .def("engine_notices", owned(&Drive::engine_notices),
           "What the user should know about the engine, such as a card that was reset: one sentence each.")
      .def("exact_sums", owned(&Drive::exact_sums),
           "Roundings that the engine decided with exact integers, because a faster sum left them open.")
      .def("notices", owned(&Drive::notices),
           "What was damaged when the drive was opened, and put right or, with salvage, lost: one sentence each.");
  m.def("timing_cases", &timing_cases, "The timing model beside published and measured values, a dict per case.");
  m.def(
      "presets",
      [] {
        nb::dict known;
        for (const Preset& preset : presets()) known[preset.name.data()] = std::string(preset.source);
        return known;
      },
      "Names of the drives that can be imitated, and where their parameters come from.");
  m.def(
      "crc32c",
      [](const Bytes& data) {
        const auto bytes = as_bytes(data);
        nb::gil_scoped_release release;  // a sending thread runs while the model computes
        return crc32c(bytes);
      },
      nb::arg("data"), "CRC-32C of a uint8 array.");
  m.def(
      "crc32c_portable", [](const Bytes& data) { return crc32c_portable(as_bytes(data)); }, nb::arg("data"),
      "The same without the processor's instruction.");
}

}  // namespace kvdrive
