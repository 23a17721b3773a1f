// SPDX-License-Identifier: Apache-2.0
// Jobs of the program of transfer.py as a driver runs them: registers, errors of the memory, restarts.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <string>

#include "Vtop.h"
#include "axi_lite.hpp"
#include "axi_memory.hpp"
#include "job_registers.hpp"

namespace {

using namespace openhls;

constexpr std::uint32_t kControl = 0x0, kGlobal = 0x4, kEnable = 0x8, kPending = 0xc, kReturn = 0x10;
constexpr std::uint32_t kSource = 0x18, kTarget = 0x24, kAsked = 0x30, kGiven = 0x38, kElements = 0x40;
constexpr std::uint32_t kBusError = 0x48;
constexpr std::uint32_t kCount = 40, kBytes = 64 * kCount;

struct Bench {
  Vtop top;
  Buffers buffers;
  Channel channel{Timing::ideal(300, 20)};
  AxiMemory source{OPENHLS_AXI_PINS(top, gmem0, 64), buffers, channel};
  AxiMemory target{OPENHLS_AXI_PINS(top, gmem1, 64), buffers, channel};
  AxiLite bus{OPENHLS_AXI_LITE_PINS(top, s_axi_control, 7), [this] { step(); }};
  JobRegisters job{bus, top.__SYM__interrupt};
  std::mt19937 random{1};
  std::uint64_t from = 0, to = 0;
  int failures = 0;

  void step() {
    top.ap_clk = 0;
    const std::uint32_t request[4] = {0, 0, 1, kCount};
    put(top.reads0_tdata, request);
    put(top.writes0_tdata, request);
    top.reads0_tvalid = top.writes0_tvalid = 1;
    for (AxiMemory* memory : {&source, &target}) memory->drive(random);
    bus.drive();
    top.eval();
    for (AxiMemory* memory : {&source, &target}) memory->sample(random);
    bus.sample();
    top.ap_clk = 1;
    top.eval();
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }

  void check(const char* what, std::uint64_t got, std::uint64_t expected) {
    if (got == expected) return;
    std::printf("%s: %llx, expected %llx\n", what, static_cast<unsigned long long>(got),
                static_cast<unsigned long long>(expected));
    ++failures;
  }

  void reset() {
    top.ap_rst_n = 0;
    for (AxiMemory* memory : {&source, &target}) memory->restart(random, Stalls::kNone);
    bus.restart(1, true);
    for (int i = 0; i < 4; ++i) {
      top.ap_clk = 0;
      bus.drive();
      top.eval();
      top.ap_clk = 1;
      top.eval();
    }
    top.ap_rst_n = 1;
    from = buffers.add(kBytes);
    to = buffers.add(kBytes);
    for (std::uint32_t i = 0; i < kBytes; ++i) buffers.data(0)[i] = static_cast<std::uint8_t>(random());
  }

  void set_up() {
    std::fill_n(buffers.data(1), kBytes, std::uint8_t{0});
    for (const auto& [offset, value] : {std::pair{kSource, from}, {kTarget, to}}) {
      bus.write(offset, static_cast<std::uint32_t>(value));
      bus.write(offset + 4, static_cast<std::uint32_t>(value >> 32));
    }
    bus.write(kAsked, 1);
    bus.write(kGiven, 1);
    bus.write(kElements, kCount);
  }
  bool copied() { return std::equal(buffers.data(0), buffers.data(0) + kBytes, buffers.data(1)); }

  // Runs until the interrupt; false if it does not come.
  bool wait() {
    for (int i = 0; i < 2000 && !job.done(); ++i) step();
    return job.done();
  }

  void run(const char* what, std::uint32_t errors, std::uint32_t returned) {
    set_up();
    job.enable();
    job.start();
    check(what, wait(), 1);
    const std::string wrong = job.finish();
    if (!wrong.empty()) check(wrong.c_str(), 1, 0);
    check("the data flows on", copied(), 1);
    check("bus_error", bus.read(kBusError), errors);
    check("the pin bus_error", top.bus_error, errors);
    check("ap_return", bus.read(kReturn), returned);
  }

  void registers() {
    check("ap_ctrl after a reset", bus.read(kControl), 4);
    bus.write(kElements, 0x12345678);
    bus.write(kElements, 0xffffffff, 2);
    check("a byte", bus.read(kElements), 0x1234ff78);
    bus.write(kBusError, 3);
    check("a word that can only be read", bus.read(kBusError), 0);
    for (const std::uint32_t gap : {0x14u, 0x20u, 0x2cu, 0x34u, 0x4cu, 0x7cu}) {
      bus.write(gap, 0xffffffff);
      check("an address without a register", bus.read(gap), 0);
    }
    bus.write(kTarget + 4, 0xabcd);
    check("the high word", bus.read(kTarget + 4), 0xabcd);
    bus.write(kEnable, 3);
    bus.write(kGlobal, 0);
    bus.write(kPending, 2);
    check("a toggled bit", bus.read(kPending), 2);
    check("no interrupt while all are off", top.__SYM__interrupt, 0);
    bus.write(kGlobal, 1);
    check("an interrupt", top.__SYM__interrupt, 1);
    check("the interrupt in ap_ctrl", bus.read(kControl), 0x204);
    bus.write(kPending, 2);
    check("no interrupt", top.__SYM__interrupt, 0);
  }

  void restarts() {
    set_up();
    bus.write(kEnable, 1);
    bus.write(kControl, 0x81);
    for (int i = 0; i < 3; ++i) {
      check("a job that starts by itself", wait(), 1);
      bus.write(kPending, 1);
      std::fill_n(buffers.data(1), kBytes, std::uint8_t{0});
    }
    bus.write(kControl, 0);
    check("the last one", wait(), 1);
    bus.write(kPending, 1);
    steps(500);
    check("idle", bus.read(kControl) & 0x85, 4);
  }

  // A start that is written before the end of a job is lost, as the bit is still 1; from the cycle of the end on, it
  // begins the next job. A write takes effect in its second cycle, and the interrupt comes one cycle after the end.
  void starts_around_the_end() {
    int end = 0, first = 0;
    for (int offset = 0; offset < 200 && first == 0; ++offset) {
      bus.restart(1, false);
      bus.write(kControl, 1);
      if (end == 0) {
        for (; !job.done(); ++end) step();
        bus.write(kPending, 1);
        bus.write(kControl, 1);
      }
      steps(offset);
      bus.write(kControl, 1);
      int jobs = job.done();
      bus.write(kPending, job.done());
      while (wait()) {
        ++jobs;
        bus.write(kPending, 1);
      }
      check("idle again", bus.read(kControl) & 5, 4);
      if (jobs == 2) first = offset;
    }
    check("the first start that counts", static_cast<unsigned>(first), static_cast<unsigned>(end - 2));
  }
};

}  // namespace

int main(int argc, char** argv) {
  Verilated::commandArgs(argc, argv);
  Verilated::randReset(2);
  Bench bench;
  bench.reset();
  bench.registers();
  bench.run("a job", 0, 0);
  bench.source.fail_at({{bench.from + 100, bench.from + 100}});
  bench.run("a job whose reads fail", 1, 0);
  bench.source.fail_at({});
  bench.target.fail_at({{bench.to + kBytes - 1, bench.to + kBytes - 1}});
  bench.run("a job whose writes fail", 2, 1);
  bench.target.fail_at({});
  bench.run("a job after an error", 0, 0);
  bench.restarts();
  bench.starts_around_the_end();
  for (const AxiMemory* memory : {&bench.source, &bench.target}) {
    if (!memory->problem().empty()) bench.check(memory->problem().c_str(), 1, 0);
  }
  std::printf("%d failures\n", bench.failures);
  return bench.failures == 0 ? 0 : 1;
}
