// SPDX-License-Identifier: Apache-2.0
#include "nand/validation.hpp"

#include <functional>
#include <queue>
#include <random>

#include "nand/device.hpp"
#include "nand/preset.hpp"

namespace kvdrive {
namespace {

NandDevice make(const char* name) {
  const Preset& preset = find_preset(name);
  return {preset.geometry, preset.timing};
}

// The time of a host read of one page or a part of it, on an idle drive.
double read_ns(const char* name, std::uint32_t bytes, std::uint32_t page = 0) {
  NandDevice device = make(name);
  const PageRead read{.die = 0, .page = page, .bytes = bytes};
  return static_cast<double>(device.read(read, device.firmware_read(bytes), Sink::kHost));
}

double write_ns(const char* name, std::uint32_t bytes) {
  return static_cast<double>(make(name).accept_write(bytes, 0));
}

// The time of a write that is acknowledged only when the flash holds the data.
double write_through_ns(const char* name, std::uint32_t bytes) {
  NandDevice device = make(name);
  return static_cast<double>(device.program(0, 0, bytes, device.accept_write(bytes, 0)));
}

// Keeps `depth` commands in flight: each is issued when an earlier one completes. `run(i, arrival)` returns the
// completion time of command i. Returns commands per second. The time in which the last `depth` commands finish does
// not count.
double closed_loop(int depth, int commands, const std::function<Ns(int, Ns)>& run) {
  std::priority_queue<Ns, std::vector<Ns>, std::greater<>> in_flight;
  for (int i = 0; i < depth; ++i) in_flight.push(0);
  Ns arrival = 0;
  for (int i = 0; i < commands; ++i) {
    arrival = in_flight.top();
    in_flight.pop();
    in_flight.push(run(i, arrival));
  }
  return (commands - depth) * 1e9 / static_cast<double>(arrival);
}

double read_rate(const char* name, std::uint32_t bytes, int depth, int commands,
                 const std::function<PageRead(int)>& next) {
  NandDevice device = make(name);
  return closed_loop(depth, commands, [&](int i, Ns arrival) {
    device.advance(arrival);
    PageRead read = next(i);
    read.bytes = bytes;
    return device.read(read, arrival + device.firmware_read(bytes), Sink::kHost);
  });
}

double random_iops(const char* name, std::uint32_t bytes) {
  const std::uint32_t dies = find_preset(name).geometry.dies();
  std::mt19937 random(1);
  return read_rate(name, bytes, 1024, 50'000, [&random, dies](int) {
    const auto die = static_cast<std::uint32_t>(random() % dies);
    return PageRead{.die = die, .page = static_cast<std::uint32_t>(random() % 256)};
  });
}

double one_die_iops(const char* name, std::uint32_t bytes) {
  return read_rate(name, bytes, 16, 2'000, [](int i) { return PageRead{.page = static_cast<std::uint32_t>(i)}; });
}

double sequential_read_mb(const char* name) {
  const Geometry& g = find_preset(name).geometry;
  const auto next = [&g](int i) {
    const auto number = static_cast<std::uint32_t>(i);
    return PageRead{.die = number % g.dies(), .page = number / g.dies()};
  };
  return read_rate(name, g.page_bytes, 128, 20'000, next) * g.page_bytes / 1e6;
}

double sequential_write_mb(const char* name) {
  const Geometry& g = find_preset(name).geometry;
  NandDevice device = make(name);
  const double rate = closed_loop(32, 20'000, [&](int i, Ns arrival) {
    device.advance(arrival);
    const Ns accepted = device.accept_write(g.page_bytes, arrival);
    const auto die = static_cast<std::uint32_t>(i) % g.dies();
    device.program(die, 0, g.page_bytes, accepted);
    return accepted;
  });
  return rate * g.page_bytes / 1e6;
}

}  // namespace

std::vector<ValidationCase> validate_timing() {
  const double lsb = read_ns("970pro", 4096, 0), msb = read_ns("970pro", 4096, 1);
  return {
      {"970pro", "4 KiB random read, one at a time, LSB page", "ns", 57'276, lsb},
      {"970pro", "4 KiB random read, one at a time, MSB page", "ns", 69'276, msb},
      {"970pro", "4 KiB random read, one at a time, mean", "ns", 63'276, (lsb + msb) / 2},
      {"970pro", "4 KiB buffered write, one at a time", "ns", 5'612, write_ns("970pro", 4096)},
      {"970pro", "sequential read", "MB/s", 3'556, sequential_read_mb("970pro")},
      {"970pro", "sequential write", "MB/s", 2'341, sequential_write_mb("970pro")},
      {"970pro", "4 KiB random read, 1024 in flight", "1/s", 394'000, random_iops("970pro", 4096)},
      {"zn540", "4 KiB random read, one at a time", "ns", 79'952, read_ns("zn540", 4096)},
      {"zns-proto", "4 KiB random read, one at a time", "ns", 64'099, read_ns("zns-proto", 4096)},
      {"mqsim-default", "8 KiB read, one at a time", "ns", 102'000, read_ns("mqsim-default", 8192)},
      {"mqsim-default", "4 KiB read, one at a time", "ns", 88'000, read_ns("mqsim-default", 4096)},
      {"mqsim-default", "8 KiB write, one at a time", "ns", 777'000, write_through_ns("mqsim-default", 8192)},
      {"mqsim-default", "8 KiB read, 16 in flight on one die", "1/s", 10'011, one_die_iops("mqsim-default", 8192)},
  };
}

}  // namespace kvdrive
