// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include <array>
#include <iomanip>
#include <ostream>
#include <set>
#include <string_view>
#include <utility>

namespace kvdrive {
namespace {

constexpr std::array kTracks{"channel", "die", "PCIe", "link", "engine memory", "engine", "queue"};
constexpr std::array kWork{"transfer", "sense", "sense weights", "sense ahead", "program", "erase", "job"};
constexpr std::array kArguments{"bytes", "bytes", "bytes", "bytes", "bytes", "bytes", "cycles", "opcode"};

std::string_view name_of_work(TraceWork work, std::uint64_t value, Trace::CommandName name_of) {
  if (work != TraceWork::kCommand) return kWork[static_cast<std::size_t>(work)];
  const auto name = name_of(static_cast<std::uint32_t>(value >> 8), static_cast<std::uint8_t>(value));
  return name.empty() ? "command" : name;
}

}  // namespace

void Trace::keep(std::size_t events) {
  events_.clear();
  events_.shrink_to_fit();
  room_ = events;
  added_ = 0;
}

std::size_t Trace::write(std::ostream& out, CommandName name_of) const {
  out << R"({"displayTimeUnit":"ns","otherData":{"clock":"modelled device time","events_in_all":)" << added_
      << R"(},"traceEvents":[)";
  // In Chrome's terms, a kind of track is a process and a track is a thread.
  std::set<std::pair<std::size_t, std::uint32_t>> named;
  const char* comma = "\n";
  for (const Event& event : events_) {
    const auto track = static_cast<std::size_t>(event.track);
    if (!named.emplace(track, event.number).second) continue;
    out << comma << R"({"ph":"M","name":"process_name","pid":)" << track + 1 << R"(,"args":{"name":")" << kTracks[track]
        << R"("}},)" << '\n'
        << R"({"ph":"M","name":"thread_name","pid":)" << track + 1 << R"(,"tid":)" << event.number
        << R"(,"args":{"name":")";
    if (event.track == TraceTrack::kQueue && event.number != 0) {
      out << "controller " << (event.number >> 16) << ", queue " << (event.number & 0xffff);
    } else {
      out << kTracks[track] << ' ' << event.number;
    }
    out << R"("}})";
    comma = ",\n";
  }
  const auto microseconds = [&out](Ns ns) {
    out << ns / 1000 << '.' << std::setw(3) << std::setfill('0') << ns % 1000;
  };
  for (const Event& event : events_) {
    out << comma << R"({"ph":"X","name":")" << name_of_work(event.work, event.value, name_of) << R"(","pid":)"
        << static_cast<std::size_t>(event.track) + 1 << R"(,"tid":)" << event.number << R"(,"ts":)";
    microseconds(event.start);
    out << R"(,"dur":)";
    microseconds(event.length);
    out << R"(,"args":{")" << kArguments[static_cast<std::size_t>(event.work)] << R"(":)"
        << (event.work == TraceWork::kCommand ? event.value & 0xff : event.value) << "}}";
    comma = ",\n";
  }
  out << "\n]}\n";
  return events_.size();
}

}  // namespace kvdrive
