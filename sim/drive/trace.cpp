// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include <array>
#include <fstream>
#include <iomanip>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace kvdrive {
namespace {

constexpr std::array kTracks{"channel", "die", "PCIe", "link", "engine memory", "engine", "commands"};
constexpr std::array kWork{"transfer", "sense", "program", "erase", "job", "command"};

}  // namespace

void Trace::keep(std::size_t events) {
  events_.clear();
  events_.shrink_to_fit();
  room_ = events;
  added_ = 0;
}

std::size_t Trace::write(const std::filesystem::path& path) const {
  std::ofstream out(path);
  out << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  // A process per kind of track, a thread per number.
  std::set<std::pair<std::size_t, std::uint32_t>> named;
  const char* comma = "\n";
  for (const Event& event : events_) {
    const auto track = static_cast<std::size_t>(event.track);
    if (!named.emplace(track, event.number).second) continue;
    out << comma << R"({"ph":"M","name":"process_name","pid":)" << track + 1 << R"(,"args":{"name":")" << kTracks[track]
        << R"("}},)" << '\n'
        << R"({"ph":"M","name":"thread_name","pid":)" << track + 1 << R"(,"tid":)" << event.number
        << R"(,"args":{"name":")" << kTracks[track] << ' ' << event.number << R"("}})";
    comma = ",\n";
  }
  const auto microseconds = [&out](Ns ns) {
    out << ns / 1000 << '.' << std::setw(3) << std::setfill('0') << ns % 1000;
  };
  for (const Event& event : events_) {
    out << comma << R"({"ph":"X","name":")" << kWork[static_cast<std::size_t>(event.work)] << R"(","pid":)"
        << static_cast<std::size_t>(event.track) + 1 << R"(,"tid":)" << event.number << R"(,"ts":)";
    microseconds(event.start);
    out << R"(,"dur":)";
    microseconds(event.length);
    out << R"(,"args":{"value":)" << event.value << "}}";
    comma = ",\n";
  }
  out << "\n]}\n";
  out.close();
  if (!out) throw std::runtime_error("cannot write the trace to " + path.string());
  return events_.size();
}

}  // namespace kvdrive
