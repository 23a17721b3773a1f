// SPDX-License-Identifier: Apache-2.0
// Fuzzing the drive: one file per surface that takes bytes from outside, all with the main program of main.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

namespace kvdrive::fuzz {

// Reproducible: the same seed gives the same inputs everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}

  std::uint64_t bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1d;
  }
  // 0 to n - 1.
  std::uint64_t below(std::uint64_t n) { return (bits() >> 16) % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <typename T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }
  void fill(std::span<std::byte> bytes) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(bits() >> 24);
  }
  // Flips, replaces or swaps a few bytes.
  void mutate(std::span<std::byte> bytes, std::uint64_t most) {
    for (std::uint64_t i = below(most + 1); i > 0; --i) {
      std::byte& byte = bytes[below(bytes.size())];
      byte = one_in(2) ? static_cast<std::byte>(bits() >> 24) : byte ^ static_cast<std::byte>(1u << below(8));
    }
  }

 private:
  std::uint64_t state_;
};

// What was fuzzed did something that no input may bring about.
inline void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

class Surface {
 public:
  virtual ~Surface() = default;
  // One input, from its making to the check of what came of it. State lives on between inputs.
  virtual void one(Random& random) = 0;
};

// Of the surface that is linked. `folder` is empty and may be used.
std::unique_ptr<Surface> make_surface(const std::filesystem::path& folder);

}  // namespace kvdrive::fuzz
