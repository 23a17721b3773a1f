// SPDX-License-Identifier: Apache-2.0
// Usage: <program> INPUTS SEED. Exit code 1 and the input's number when one does harm; sanitizers end the program, and
// so does an input that takes a minute.
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "fuzz/fuzz.hpp"

namespace {

std::uint64_t seed = 1, input = 0;

void tell_input() { std::fprintf(stderr, "input %" PRIu64 " of seed %" PRIu64 "\n", input, seed); }

constexpr unsigned kLongestSeconds = 60;

void hang(int) {
  std::fputs("an input takes too long\n", stderr);
  tell_input();
  std::_Exit(1);
}

}  // namespace

int main(int count, char** arguments) {
  const std::uint64_t inputs = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1000;
  seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1;
  __sanitizer_set_death_callback(tell_input);
  const auto folder = std::filesystem::temp_directory_path() / ("kvdrive-fuzz-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  int result = 0;
  try {
    const auto surface = kvdrive::fuzz::make_surface(folder);
    kvdrive::fuzz::Random random(seed);
    auto shown = std::chrono::steady_clock::now();
    std::signal(SIGALRM, hang);
    for (; input < inputs; ++input) {
      alarm(kLongestSeconds);
      surface->one(random);
      if (const auto now = std::chrono::steady_clock::now(); now - shown > std::chrono::seconds(10)) {
        std::fprintf(stderr, "%" PRIu64 " of %" PRIu64 " inputs\n", input, inputs);
        shown = now;
      }
    }
    std::printf("%" PRIu64 " inputs, no harm\n", inputs);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    tell_input();
    result = 1;
  }
  std::filesystem::remove_all(folder);
  return result;
}
