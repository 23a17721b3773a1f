// SPDX-License-Identifier: Apache-2.0
// A simulated loss of power at a chosen write. The file keeps what a disk may have kept of the writes since the last
// sync, in whole sectors. Every later operation fails.
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

  // Cuts the power after `writes` more writes. `torn` 0 keeps all earlier writes and nothing of the last one; 1 keeps
  // half of the last one. From 2 on, each value keeps a different selection of the writes since the last sync: whole
  // writes for even values, sectors for odd ones.
  void arm(std::uint64_t writes, std::uint64_t torn);

  bool armed() const { return armed_; }

  // To be called before each write and sync while armed. Throws PowerLost once the power is lost.
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
