// SPDX-License-Identifier: Apache-2.0
#include "harness.hpp"

namespace openhls {

int Harness::run(int argc, char** argv) {
  if (argc != 4) return 2;
  record_.load(argv[1]);
  const std::string mode = argv[2];
  stalls_ = mode == "stalls" || mode == "resets" ? Stalls::kRandom : Stalls::kNone;
  if (mode == "none") channel_ = Channel(Timing::ideal(300, 100));
  if (mode == "ddr4") channel_ = Channel(Timing::ddr4(300));
  patience_ = std::strtoul(argv[3], nullptr, 10);
  reset();
  std::string cycles;
  const std::uint32_t cases = record_.next();
  for (std::uint32_t i = 0; i < cases && problem_.empty(); ++i) {
    seed_ = record_.next();
    random_.seed(seed_);
    const std::size_t at = record_.position();
    if (mode == "resets" && (i == 0 || !keeps_state_)) {
      prepare();
      run_some();
      reset();
      record_.rewind(at);
    }
    const std::size_t took = run_case();
    cycles += (i == 0 ? "" : ", ") + std::to_string(took);
  }
  std::printf("{\"cases\": %u, \"words\": %zu, \"cycles\": [%s], \"problem\": \"%s\"}\n", cases, compared_,
              cycles.c_str(), problem_.c_str());
  return problem_.empty() ? 0 : 1;
}

}  // namespace openhls
