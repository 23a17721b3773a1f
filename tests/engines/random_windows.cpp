// SPDX-License-Identifier: Apache-2.0
// Random calls of a window of neurons in memory of exactly its size, for sanitizers. Each row says whose it is.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "engine/fast/neuron_window.hpp"

namespace {

using kvdrive::fast::NeuronWindow;

constexpr std::size_t kRows = 37, kGroups = 64, kRowBytes = 24;
constexpr int kCalls = 2000;

std::int64_t group_in(const std::vector<std::byte>& memory, std::size_t row, std::size_t word) {
  std::int64_t group = 0;
  std::memcpy(&group, memory.data() + row * kRowBytes + 8 * word, 8);
  return group;
}

bool rows_are_right(const NeuronWindow& window, const std::vector<std::byte>& memory, std::size_t most) {
  if (window.num_used() > most) return false;
  std::set<std::int64_t> seen;
  for (std::size_t row = 0; row < window.num_used(); ++row) {
    const std::int64_t group = window.pointer()[row];
    if (!seen.insert(group).second) return false;
    if (window.rows()[static_cast<std::size_t>(group)] != static_cast<std::int64_t>(row)) return false;
    for (std::size_t word = 0; word < kRowBytes / 8; ++word) {
      if (group_in(memory, row, word) != group) return false;
    }
  }
  return true;
}

}  // namespace

int main() {
  std::mt19937 random(3);
  std::vector<std::byte> memory(kRows * kRowBytes);
  NeuronWindow window(memory, kRowBytes, kGroups, 3);
  for (int call = 0; call < kCalls; ++call) {
    std::set<std::int64_t> used;
    const std::size_t count = random() % (kRows + 1);
    while (used.size() < count) used.insert(static_cast<std::int64_t>(random() % kGroups));
    const std::vector<std::int64_t> groups(used.begin(), used.end());
    const std::vector<std::int64_t> briefly(groups.begin(), groups.begin() + static_cast<long>(random() % (count + 1)));
    const auto missing = window.make_room(groups, briefly);
    for (std::size_t i = 0; i < missing.size(); ++i) {
      for (std::size_t word = 0; word < kRowBytes / 8; ++word) {
        std::memcpy(memory.data() + (window.num_used() + i) * kRowBytes + 8 * word, &missing[i], 8);
      }
    }
    if (random() % 8 != 0) window.append();
    if (!rows_are_right(window, memory, kRows)) return std::printf("call %d: a row is wrong\n", call), 1;
    try {
      window.make_room(std::vector<std::int64_t>{static_cast<std::int64_t>(kGroups)}, {});
      return std::printf("a group that does not exist was accepted\n"), 1;
    } catch (const std::invalid_argument&) {
    }
  }
  std::printf("%d calls, every row as expected\n", kCalls);
  return 0;
}
