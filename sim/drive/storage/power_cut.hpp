// SPDX-License-Identifier: Apache-2.0
// A simulated loss of power: at the chosen write, what a disk may have kept of the writes since the last sync is left
// in the file, in whole sectors, and nothing works any more.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

namespace kvdrive {

struct PowerLost : std::runtime_error {
  PowerLost() : std::runtime_error("the power was cut (fault injection)") {}
};

class PowerCut {
 public:
  static constexpr std::size_t kSectorBytes = 512;
  using Read = std::function<void(std::uint64_t offset, std::span<std::byte>)>;
  using Write = std::function<void(std::uint64_t offset, std::span<const std::byte>)>;

  // After `writes` more writes. `torn`: 0 keeps the writes before it and nothing of the last one, 1 half of the last
  // one; 2 and up: a selection of what was written since the last sync, another one for each number, of whole writes
  // (even numbers) or of sectors (odd ones).
  void arm(std::uint64_t writes, std::uint64_t torn);

  bool armed() const { return armed_; }

  // Before each write and sync while armed. Throws PowerLost once the power is gone.
  void before_write(std::uint64_t offset, std::span<const std::byte> data, const Read& read, const Write& write);
  void before_sync();
  void check() const {
    if (lost_) throw PowerLost();
  }

 private:
  struct Written {
    std::uint64_t offset;
    std::vector<std::byte> before;
  };

  void leave_behind(const Write& write);

  bool armed_ = false;
  bool lost_ = false;
  std::uint64_t left_ = 0;
  std::uint64_t torn_ = 0;
  std::vector<Written> unsynced_;
};

}  // namespace kvdrive
