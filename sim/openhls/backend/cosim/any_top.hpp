// SPDX-License-Identifier: Apache-2.0
// A verilated model of any class as its clock, its reset and eval(): the harness is compiled once for all models.
#pragma once

#include <verilated.h>

#include <functional>

#include "harness.hpp"

namespace openhls {

struct AnyTop {
  template <typename Top>
  explicit AnyTop(Top& top) : ap_clk(top.ap_clk), ap_rst_n(top.ap_rst_n), eval([&top] { top.eval(); }) {}
  CData& ap_clk;
  CData& ap_rst_n;
  std::function<void()> eval;
};

extern template class Harness<AnyTop>;

}  // namespace openhls
