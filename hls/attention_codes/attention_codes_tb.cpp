// SPDX-License-Identifier: Apache-2.0
// csim of attention_codes: a case is a memory with a job in it, the expected status word and the expected memory
// afterwards. All of the memory is compared, so that a stray write shows wherever it lands.
#include "attention_codes/tops.hpp"
#include "common/csim.hpp"

namespace {

using kvdrive::beat_t;

auto* top_of(int bits, int group) {
  if (bits == 4) return group == 4 ? kvdrive::attention_codes4_g4 : kvdrive::attention_codes4_g1;
  return group == 4 ? kvdrive::attention_codes_g4 : kvdrive::attention_codes_g1;
}

void check(const kvdrive::csim::Case& item) {
  std::vector<beat_t> memory = item.beats("memory");
  auto* const top = top_of(item.scalar<int>("bits"), item.scalar<int>("top"));
  beat_t* const beats = memory.data();
  const std::uint32_t status = top(beats, beats, beats, beats, item.scalar<std::uint64_t>("job"), memory.size());
  kvdrive::csim::compare("status", status, item.scalar<std::uint32_t>("status"));
  kvdrive::csim::compare("memory", memory, item.beats("expected"));
}

}  // namespace

int main(int argc, char** argv) { return kvdrive::csim::run(argc, argv, check); }
