// SPDX-License-Identifier: Apache-2.0
// Fuzzing of the drive: one file for each surface that takes bytes from outside. All share the entry point of
// entry.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "volume.hpp"

namespace kvdrive::fuzz {

// A drive that is full after a few commands.
inline VolumeOptions small_drive() {
  VolumeOptions options;
  options.capacity_bytes = 4 << 20;
  options.preset = "mqsim-default";
  options.pages_per_block = 4;
  return options;
}

// A source of random choices. The same seed, or the same script, gives the same choices on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}
  // Choices come from the bytes of `script`, a few bytes each, so that a changed byte changes one choice. When the
  // bytes are used up, choices follow from a seed: the script's FNV-1a hash.
  explicit Random(std::span<const std::uint8_t> script) : Random(0xcbf29ce484222325) {
    script_ = script;
    for (const std::uint8_t byte : script) state_ = (state_ ^ byte) * 0x100000001b3;
    state_ |= 1;
  }

  std::uint64_t bits() { return script_.empty() ? generate() : read(8); }
  // A number from 0 to n - 1.
  std::uint64_t below(std::uint64_t n) {
    if (script_.empty()) return (generate() >> 16) % n;
    return read(n <= 1 << 8 ? 1 : n <= 1 << 16 ? 2 : 8) % n;
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <typename T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }
  void fill(std::span<std::byte> bytes) {
    Random contents(bits());  // consumes one choice for any number of bytes
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(contents.generate() >> 24);
  }
  // Flips, replaces or swaps a few bytes.
  void mutate(std::span<std::byte> bytes, std::uint64_t most) {
    for (std::uint64_t i = below(most + 1); i > 0; --i) {
      std::byte& byte = bytes[below(bytes.size())];
      byte = one_in(2) ? static_cast<std::byte>(below(256)) : byte ^ static_cast<std::byte>(1u << below(8));
    }
  }

 private:
  std::uint64_t generate() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545f4914f6cdd1d;
  }
  std::uint64_t read(std::size_t bytes) {
    std::uint64_t value = 0;
    for (; bytes > 0 && !script_.empty(); --bytes, script_ = script_.subspan(1)) value = value << 8 | script_.front();
    return value;
  }

  std::uint64_t state_;
  std::span<const std::uint8_t> script_;
};

// Throws if an input caused a result that no input may cause.
inline void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

class Surface {
 public:
  virtual ~Surface() = default;
  // Makes one input, passes it to the surface and checks the results. State is kept between calls.
  virtual void one(Random& random) = 0;
  // True if each step starts with the state after construction; one surface then serves many inputs.
  virtual bool starts_anew() const { return false; }
};

// Makes the surface that is linked into this program. `folder` is empty, and only this surface uses it.
std::unique_ptr<Surface> make_surface(const std::filesystem::path& folder);

}  // namespace kvdrive::fuzz
