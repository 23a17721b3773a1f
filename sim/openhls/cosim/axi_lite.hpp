// SPDX-License-Identifier: Apache-2.0
// Drives the AXI4-Lite port of a verilated model, one access at a time. `step` must run one whole cycle, in which it
// calls drive() before the model is evaluated with the clock low and sample() after it.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>

#include "ports.hpp"

namespace openhls {

struct AxiLitePins {
  CData *awvalid, *awready, *wvalid, *wready, *bvalid, *bready, *arvalid, *arready, *rvalid, *rready;
  CData *wstrb, *bresp, *rresp;
  IData *wdata, *rdata;
  Port awaddr, araddr;
};

// The pins of `top.<prefix>_*`, with addresses of `bits`.
#define OPENHLS_AXI_LITE_PINS(top, prefix, bits)                                                                   \
  openhls::AxiLitePins {                                                                                           \
    &(top).prefix##_AWVALID, &(top).prefix##_AWREADY, &(top).prefix##_WVALID, &(top).prefix##_WREADY,              \
        &(top).prefix##_BVALID, &(top).prefix##_BREADY, &(top).prefix##_ARVALID, &(top).prefix##_ARREADY,          \
        &(top).prefix##_RVALID, &(top).prefix##_RREADY, &(top).prefix##_WSTRB, &(top).prefix##_BRESP,              \
        &(top).prefix##_RRESP, &(top).prefix##_WDATA, &(top).prefix##_RDATA,                                       \
        openhls::port("AWADDR", bits, (top).prefix##_AWADDR), openhls::port("ARADDR", bits, (top).prefix##_ARADDR) \
  }

class AxiLite {
 public:
  AxiLite(AxiLitePins pins, std::function<void()> step) : pins_(pins), step_(std::move(step)) {}

  // Without `stalls`, everything is offered and taken at once.
  void restart(std::uint32_t seed, bool stalls) {
    random_.seed(seed);
    stalls_ = stalls;
    still_ = false;
    sends_address_ = sends_data_ = writes_ = asks_ = reads_ = false;
  }

  // While nothing is sent, its pins do not change.
  void hold_still() { still_ = true; }
  // `strobe`: a bit per byte. A model that does not answer is reported by problem().
  void write(std::uint32_t address, std::uint32_t data, unsigned strobe = 15) {
    address_ = address;
    data_ = data;
    strobe_ = strobe;
    sends_address_ = sends_data_ = writes_ = true;
    wait(writes_);
  }
  std::uint32_t read(std::uint32_t address) {
    address_ = address;
    asks_ = reads_ = true;
    wait(reads_);
    return data_;
  }
  const std::string& problem() const { return problem_; }

  // `width` bits of registers at `address` as a port.
  Port port(const char* name, int width, std::uint32_t address) {
    const auto words = static_cast<std::uint32_t>((width + 31) / 32);
    return {name, width,
            [this, words, address](const std::uint32_t* from) {
              for (std::uint32_t i = 0; i < words; ++i) write(address + 4 * i, from[i]);
            },
            [this, words, address](std::uint32_t* to) {
              for (std::uint32_t i = 0; i < words; ++i) to[i] = read(address + 4 * i);
            }};
  }

  void drive() {
    *pins_.awvalid = sends_address_ && (*pins_.awvalid != 0 || open());
    *pins_.wvalid = sends_data_ && (*pins_.wvalid != 0 || open());
    *pins_.arvalid = asks_ && (*pins_.arvalid != 0 || open());
    // What is not valid has any value.
    pins_.awaddr.put(&(*pins_.awvalid != 0 ? address_ : any(pins_.awaddr.width)));
    pins_.araddr.put(&(*pins_.arvalid != 0 ? address_ : any(pins_.araddr.width)));
    *pins_.wdata = *pins_.wvalid != 0 ? data_ : any(32);
    *pins_.wstrb = static_cast<CData>(*pins_.wvalid != 0 ? strobe_ : any(4));
    *pins_.bready = writes_ && open();
    *pins_.rready = reads_ && open();
  }
  void sample() {
    if (*pins_.awvalid != 0 && *pins_.awready != 0) sends_address_ = false;
    if (*pins_.wvalid != 0 && *pins_.wready != 0) sends_data_ = false;
    if (*pins_.arvalid != 0 && *pins_.arready != 0) asks_ = false;
    if (*pins_.bvalid != 0 && *pins_.bready != 0) {
      writes_ = false;
      if (*pins_.bresp != 0) problem_ = "AXI4-Lite: a write was refused";
    }
    if (*pins_.rvalid != 0 && *pins_.rready != 0) {
      reads_ = false;
      data_ = *pins_.rdata;
      if (*pins_.rresp != 0) problem_ = "AXI4-Lite: a read was refused";
    }
  }

 private:
  const std::uint32_t& any(int width) {
    return any_ = still_ ? 0 : static_cast<std::uint32_t>(random_()) >> (32 - width);
  }
  bool open() { return !stalls_ || random_() % 3 == 0; }
  void wait(const bool& pending) {
    for (int i = 0; i < 1000 && pending; ++i) step_();
    if (pending) problem_ = "AXI4-Lite: no answer";
  }

  AxiLitePins pins_;
  std::function<void()> step_;
  std::mt19937 random_;
  bool stalls_ = false, still_ = false;
  bool sends_address_ = false, sends_data_ = false, writes_ = false, asks_ = false, reads_ = false;
  std::uint32_t address_ = 0, data_ = 0, strobe_ = 0, any_ = 0;
  std::string problem_;
};

}  // namespace openhls
