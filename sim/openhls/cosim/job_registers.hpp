// SPDX-License-Identifier: Apache-2.0
// Vitis' control registers behind AXI4-Lite: starts a job with its interrupt on, and looks at what they say at its end.
#pragma once

#include <string>

#include "axi_lite.hpp"

namespace openhls {

class JobRegisters {
 public:
  JobRegisters(AxiLite& bus, const CData& interrupt) : bus_(bus), interrupt_(interrupt) {}

  // Turns the interrupt on, which a reset turns off.
  void enable() {
    bus_.write(kGlobal, 1);
    bus_.write(kEnable, kDone);
  }
  void start() { bus_.write(kControl, kStart); }
  bool done() const { return interrupt_ != 0; }
  // Takes the interrupt back. Returns what is wrong, or "".
  std::string finish() {
    if (bus_.read(kPending) != kDone) return "the interrupt is not that of the end of the job";
    bus_.write(kPending, kDone);
    if (interrupt_ != 0) return "the interrupt stays";
    if ((bus_.read(kControl) & kAll) != (kDoneBit | kIdleBit | kReadyBit)) return "ap_ctrl is not done, idle and ready";
    if ((bus_.read(kControl) & kAll) != kIdleBit) return "reading does not clear ap_done and ap_ready";
    return "";
  }

 private:
  static constexpr std::uint32_t kControl = 0x0, kGlobal = 0x4, kEnable = 0x8, kPending = 0xc;
  static constexpr std::uint32_t kStart = 1, kDone = 1, kDoneBit = 2, kIdleBit = 4, kReadyBit = 8, kAll = 0x8f;
  AxiLite& bus_;
  const CData& interrupt_;
};

}  // namespace openhls
