// SPDX-License-Identifier: Apache-2.0
// csim of attention: a case is a memory with a job in it, the expected status word and the expected memory afterwards.
// All of the memory is compared, so that a stray write shows wherever it lands.
#include "attention/tops.hpp"
#include "common/csim.hpp"

namespace {

using kvdrive::beat_t;
using Top = std::uint32_t (*)(const beat_t*, const beat_t*, beat_t*, std::uint64_t, std::uint64_t);

Top exact_top_of(int group) {
  switch (group) {
    case 1:
      return kvdrive::attention_exact_g1;
    case 4:
      return kvdrive::attention_exact_g4;
    case 5:
      return kvdrive::attention_exact_g5;
    default:
      throw std::runtime_error("no exact top for this group");
  }
}

Top top_of(int group) {
  switch (group) {
    case 1:
      return kvdrive::attention_g1;
    case 2:
      return kvdrive::attention_g2;
    case 4:
      return kvdrive::attention_g4;
    case 5:
      return kvdrive::attention_g5;
    case 8:
      return kvdrive::attention_g8;
    default:
      throw std::runtime_error("no top for this group");
  }
}

void check(const kvdrive::csim::Case& item) {
  std::vector<beat_t> memory = item.beats("memory");
  const int group = item.scalar<int>("top");
  const Top top = item.scalar<int>("exact") != 0 ? exact_top_of(group) : top_of(group);
  const std::uint32_t status =
      top(memory.data(), memory.data(), memory.data(), item.scalar<std::uint64_t>("job"), memory.size());
  kvdrive::csim::compare("status", status, item.scalar<std::uint32_t>("status"));
  kvdrive::csim::compare("memory", memory, item.beats("expected"));
}

}  // namespace

int main(int argc, char** argv) { return kvdrive::csim::run(argc, argv, check); }
