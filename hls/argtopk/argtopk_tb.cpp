// SPDX-License-Identifier: Apache-2.0
// csim of argtopk: both outputs beat by beat, and that nothing beyond them is written.
#include "argtopk/argtopk.hpp"
#include "common/csim.hpp"

namespace {

using kvdrive::beat_t;

constexpr unsigned kGuard = 0xa5a5a5a5;

std::vector<beat_t> guarded(std::size_t beats) {
  return kvdrive::csim::to_beats(std::vector<std::uint32_t>(16 * beats, kGuard));
}

// `expected` in its first beats, guards after them.
std::vector<beat_t> with_guards(const std::vector<beat_t>& expected, std::size_t beats) {
  std::vector<beat_t> all = guarded(beats);
  std::copy(expected.begin(), expected.end(), all.begin());
  return all;
}

void check(const kvdrive::csim::Case& item) {
  const int n = item.scalar<int>("n");
  const int k = item.scalar<int>("k");
  const auto expected_indices = item.beats("indices");
  const auto expected_bitmap = item.beats("bitmap");
  auto indices = guarded(expected_indices.size() + 2);
  auto bitmap = guarded(expected_bitmap.size() + 2);
  const int status =
      kvdrive::argtopk(item.beats("keys").data(), indices.data(), bitmap.data(), n, k, item.scalar<int>("key_type"));
  kvdrive::csim::compare("status", status, item.scalar<int>("status"));
  kvdrive::csim::compare("indices", indices, with_guards(expected_indices, indices.size()));
  kvdrive::csim::compare("bitmap", bitmap, with_guards(expected_bitmap, bitmap.size()));
}

}  // namespace

int main(int argc, char** argv) { return kvdrive::csim::run(argc, argv, check); }
