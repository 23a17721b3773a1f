// SPDX-License-Identifier: Apache-2.0
// Power cuts at every write of a drive, for machines without Python: kvdrive-crash FOLDER [STEPS]
//
// A fixed sequence of appends, trims and flushes runs until the power is cut. The drive is opened again and must
// hold exactly the state after some step: not before the last one that was durable, not after the first one that was
// not executed. Its maps must agree with its pages. Prints the number of cuts.
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "crc32c.hpp"
#include "drive.hpp"

namespace {

using namespace kvdrive;

constexpr std::uint32_t kDim = 64, kHeads = 2, kSessions = 3;

// Each row holds the step that appended it. A session's rows are the same in all heads.
using Rows = std::vector<std::uint32_t>;
struct State {
  std::map<std::pair<std::uint32_t, std::uint8_t>, Rows> rows;  // by session and kind
  std::map<std::uint32_t, std::uint32_t> sequence;              // of the next append
};

std::uint16_t element(std::uint32_t step, std::size_t token, std::uint32_t column) {
  return static_cast<std::uint16_t>(0x3c00 + (step * 31 + token * 7 + column) % 1024);
}

std::vector<std::byte> contents(const Rows& rows, std::size_t first, std::size_t heads) {
  std::vector<std::byte> data;
  for (std::size_t head = 0; head < heads; ++head) {
    for (std::size_t token = first; token < rows.size(); ++token) {
      for (std::uint32_t column = 0; column < kDim; ++column) {
        const auto bytes = nvme::bytes_of(element(rows[token], token, column));
        data.insert(data.end(), bytes.begin(), bytes.end());
      }
    }
  }
  return data;
}

template <typename Layout>
std::uint32_t send(Drive& drive, const Layout& command, std::span<const std::byte> data = {}) {
  static_assert(sizeof command == abi::kSqeBytes);
  const auto done = drive.submit(std::as_bytes(std::span<const Layout, 1>(&command, 1)), data);
  return std::bit_cast<abi::Cqe>(done.cqe).status >> abi::kCqeStatusShift & 0x7ff;
}

struct Outcome {
  std::uint32_t status;
  bool durable;
};

// Executes a step on the drive; `next` becomes the state after it.
Outcome execute(Drive& drive, const State& state, std::uint32_t step, State& next) {
  const std::uint32_t draw = step * 2654435761u >> 8, session = 1 + draw % kSessions;
  next = state;
  Outcome outcome{abi::kSuccess, false};
  if (draw % 11 == 0) {
    abi::Sqe flush{};
    flush.nsid = abi::kNvm;
    outcome = {send(drive, flush), true};
  } else if (draw % 13 == 0 && state.sequence.contains(session)) {
    abi::SessionTrim trim{};
    trim.opcode = abi::kSessionTrim;
    trim.nsid = abi::kNvm;
    trim.session = session;
    trim.from_token = draw % 3 == 0 ? 0 : static_cast<std::uint32_t>(next.rows[{session, 0}].size() / 2);
    for (const std::uint8_t kind : {std::uint8_t{0}, std::uint8_t{1}}) {
      Rows& rows = next.rows[{session, kind}];
      rows.resize(std::min<std::size_t>(rows.size(), trim.from_token));
      if (rows.empty()) next.rows.erase({session, kind});
    }
    if (trim.from_token == 0) next.sequence.erase(session);
    outcome.status = send(drive, trim);
  } else {
    abi::KvAppend append{};
    append.kind = static_cast<std::uint8_t>(draw / 16 % 2);
    Rows& rows = next.rows[{session, append.kind}];
    const std::size_t first = rows.size();
    rows.resize(first + 1 + draw / 64 % 90, step);
    const auto data = contents(rows, first, kHeads);
    append.opcode = abi::kKvAppend;
    append.nsid = abi::kNvm;
    append.session = session;
    append.heads = kHeads;
    append.first_token = static_cast<std::uint32_t>(first);
    append.tokens = static_cast<std::uint16_t>(rows.size() - first);
    append.row_bytes = kDim * 2;
    append.sequence = next.sequence[session]++;
    append.crc32c = crc32c(data);
    append.options = draw % 5 == 0 ? std::uint32_t{abi::kAppendFua} : 0;
    outcome = {send(drive, append, data), append.options != 0};
  }
  return outcome;
}

bool holds(Drive& drive, const State& state) {
  std::size_t heads = 0;
  for (const std::uint32_t session : drive.sessions()) heads += drive.heads(session).size();
  if (heads != state.rows.size() * kHeads) return false;
  for (const auto& [name, rows] : state.rows) {
    for (std::uint32_t head = 0; head < kHeads; ++head) {
      const auto kind = static_cast<abi::KvKind>(name.second);
      if (drive.rows(name.first, 0, head, kind) != contents(rows, 0, 1)) return false;
    }
  }
  return true;
}

[[noreturn]] void fail(std::uint64_t cut, const std::string& what) {
  std::printf("cut %llu: %s\n", static_cast<unsigned long long>(cut), what.c_str());
  std::exit(1);
}

VolumeOptions options() {
  VolumeOptions small;
  small.capacity_bytes = 4096 * 700;
  small.preset = "970pro";
  small.pages_per_block = 1;
  small.snapshot_bytes = 1 << 16;
  return small;
}

std::uint64_t cut_at(const std::filesystem::path& path, std::uint64_t cut, std::uint32_t steps) {
  std::filesystem::remove(path);
  std::vector<State> states(1);
  std::size_t safe = 0;
  bool lost = false;
  std::uint64_t writes = 0;
  {
    Drive drive(path, make_fast_engine(), options());
    drive.inject({.kind = FaultKind::kPowerCut, .after = cut, .argument = cut % 4 < 2 ? cut % 4 : cut << 8 | 2});
    for (std::uint32_t step = 1; step <= steps && !lost; ++step) {
      State next;
      const Outcome outcome = execute(drive, states.back(), step, next);
      lost = outcome.status == abi::kInternalError;  // the step may have been stored before the cut
      const bool full = outcome.status == abi::kCapacityExceeded;
      if (!lost && !full && outcome.status != abi::kSuccess) {
        fail(cut, "step " + std::to_string(step) + " ended with status " + std::to_string(outcome.status));
      }
      if (!full) states.push_back(std::move(next));
      if (outcome.durable && outcome.status == abi::kSuccess) safe = states.size() - 1;
    }
    writes = drive.flash_stats().file_writes;
  }
  Drive drive(path, make_fast_engine(), options());
  if (const auto problems = drive.check(); !problems.empty()) fail(cut, problems.front());
  for (std::size_t i = states.size(); i-- > safe;) {
    if (holds(drive, states[i])) return writes;
  }
  fail(cut, "the drive holds no state since the last durable one");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: kvdrive-crash FOLDER [STEPS]\n");
    return 2;
  }
  const std::filesystem::path path = std::filesystem::path(argv[1]) / "crash.kv";
  const auto steps = static_cast<std::uint32_t>(argc > 2 ? std::atoi(argv[2]) : 60);
  const std::uint64_t writes = cut_at(path, UINT64_MAX, steps);
  std::uint64_t cuts = 0;
  for (; cuts < writes; ++cuts) cut_at(path, cuts, steps);
  std::filesystem::remove(path);
  std::printf("%llu cuts\n", static_cast<unsigned long long>(cuts));
  return cuts > 0 ? 0 : 1;
}
