// SPDX-License-Identifier: Apache-2.0
// csim of group_choice: a case is a memory with a job in it, the expected status word and the expected memory
// afterwards. All of the memory is compared, so that a stray write shows wherever it lands.
#include "common/csim.hpp"
#include "group_choice/tops.hpp"

namespace {

using kvdrive::beat_t;
using Top = std::uint32_t (*)(const beat_t*, const beat_t*, beat_t*, std::uint64_t, std::uint64_t);

Top top_of(int group) {
  switch (group) {
    case 1:
      return kvdrive::group_choice_g1;
    case 2:
      return kvdrive::group_choice_g2;
    case 4:
      return kvdrive::group_choice_g4;
    case 5:
      return kvdrive::group_choice_g5;
    case 8:
      return kvdrive::group_choice_g8;
    default:
      throw std::runtime_error("no top for this group");
  }
}

void check(const kvdrive::csim::Case& item) {
  std::vector<beat_t> memory = item.beats("memory");
  const Top top = top_of(item.scalar<int>("top"));
  const std::uint32_t status =
      top(memory.data(), memory.data(), memory.data(), item.scalar<std::uint64_t>("job"), memory.size());
  kvdrive::csim::compare("status", status, item.scalar<std::uint32_t>("status"));
  kvdrive::csim::compare("memory", memory, item.beats("expected"));
}

}  // namespace

int main(int argc, char** argv) { return kvdrive::csim::run(argc, argv, check); }
