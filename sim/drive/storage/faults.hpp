// SPDX-License-Identifier: Apache-2.0
// Fault injection: which operation fails, when, and how often. One object per drive; the parts that can fail ask it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvdrive {

enum class FaultKind : std::uint8_t {
  // A page that no decoding corrects. `count` pages fail, then reads succeed again. With a nonzero `argument`, each
  // page is lost with that probability (in units of 10^-9), drawn with the seed `after`.
  kReadUncorrectable,
  kProgramFail,  // a program that the flash reports as failed
  kEraseFail,
  kSlowDie,         // operations of die `argument` take `count` percent of the normal time
  kPowerCut,        // the machine loses power at a write of the backing file; `argument` is `torn` of PowerCut::arm
  kFull,            // the drive accepts no more groups
  kLostCompletion,  // an I/O command is executed, but its completion is not sent
  kCommandTimeout,  // an I/O command is not executed and never completes
  kEngineHang,      // the engine does not answer; the firmware gives up after one second of device time
  kDiskFull,        // a write to the backing file finds its file system full
  kKinds
};

struct Fault {
  FaultKind kind = FaultKind::kReadUncorrectable;
  std::uint64_t after = 0;  // operations of this kind that still succeed
  std::uint64_t count = 0;  // operations that then fail
  std::uint64_t argument = 0;
};

class Faults {
 public:
  void inject(const Fault& fault) {
    at(fault.kind) = fault;
    draws_ = 0;
  }
  void clear() { faults_ = {}; }

  // Counts an operation. True if it must fail.
  bool strikes(FaultKind kind) {
    Fault& fault = at(kind);
    if (fault.count == 0) return false;
    if (kind == FaultKind::kReadUncorrectable && fault.argument > 0) return drawn(fault);
    if (fault.after > 0) {
      --fault.after;
      return false;
    }
    --fault.count;
    ++struck_;
    return true;
  }

  std::uint64_t struck() const { return struck_; }

 private:
  // Draws from a fixed pseudo-random sequence (SplitMix64), a different one for each seed.
  bool drawn(Fault& fault) {
    std::uint64_t draw = fault.after + ++draws_ * 0x9e3779b97f4a7c15ULL;
    draw = (draw ^ (draw >> 30)) * 0xbf58476d1ce4e5b9ULL;
    draw = (draw ^ (draw >> 27)) * 0x94d049bb133111ebULL;
    if ((draw ^ (draw >> 31)) % 1'000'000'000 >= fault.argument) return false;
    --fault.count;
    ++struck_;
    return true;
  }

  Fault& at(FaultKind kind) { return faults_[static_cast<std::size_t>(kind)]; }

  std::array<Fault, static_cast<std::size_t>(FaultKind::kKinds)> faults_;
  std::uint64_t struck_ = 0;
  std::uint64_t draws_ = 0;
};

}  // namespace kvdrive
