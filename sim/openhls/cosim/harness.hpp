// SPDX-License-Identifier: Apache-2.0
// Drives a verilated top with recorded cases (reference.hpp), back to back, and compares all that comes out: streams,
// results, and every byte of the buffers behind its pointers.
//
// Every channel stalls at random in its own way, chosen anew for each case. A job that waits for ever ends the run with
// the state of each stream and memory: no word moves although every channel is open, and the model comes back to a
// state that it had. A job that computes goes on, for `patience` cycles without a word at most.
#pragma once

#include <verilated.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "array_port.hpp"
#include "axi_lite.hpp"
#include "axi_memory.hpp"
#include "axi_stream.hpp"
#include "job_registers.hpp"
#include "ports.hpp"
#include "record.hpp"
#include "repeats.hpp"
#include "stalls.hpp"

namespace openhls {

class Harness {
 public:
  template <typename Top>
  explicit Harness(Top& top) : clock_(top.ap_clk), reset_(top.ap_rst_n), evaluate_([&top] { top.eval(); }) {}
  Harness(const Harness&) = delete;
  Harness& operator=(const Harness&) = delete;

  // ---- what the model has; every list in the order of the record ----

  void scalar(Port port) { scalars_.push_back(port); }
  void input(StreamPorts port, bool of_task = false) { sources_.emplace_back(port, of_task); }
  void output(StreamPorts port) { sinks_.emplace_back(port); }
  void result(Port port) { results_.push_back(port); }
  void pointer(Port address, std::size_t element_bytes) { pointers_.push_back({address, element_bytes, {}}); }
  // An array argument: its buffer; then the pins of its banks or registers.
  void array(const char* name) {
    pointers_.push_back({{name, 0, [](const std::uint32_t*) {}, [](std::uint32_t*) {}}, 1, {}});
  }
  void bank(ArrayPins pins) { arrays_.emplace_back(std::move(pins), buffers_, pointers_.size() - 1); }
  // All that the model keeps from one cycle to the next.
  void state(const void* place, std::size_t bytes) {
    state_ = place;
    state_bytes_ = bytes;
  }
  // A job starts with what the one before has left; only a reset brings the initial contents back.
  void keeps_state() { keeps_state_ = true; }
  // Tasks of the model go on when a job has ended: its words may come later.
  void runs_on() { runs_on_ = true; }
  void memory(AxiPins pins) { memories_.emplace_back(pins, buffers_, channel_); }
  AxiLite& bus(AxiLitePins pins) {
    bus_ = std::make_unique<AxiLite>(pins, [this] { step(); });
    return *bus_;
  }
  void pins(CData& start, const CData& done) {
    start_ = &start;
    done_ = &done;
  }
  void registers(const CData& interrupt) {
    done_ = &interrupt;
    job_ = std::make_unique<JobRegisters>(*bus_, interrupt);
  }

  // Arguments: file, mode, most cycles without a word. Modes: "none", every channel always open and memory 100
  // cycles away; "ddr4", the same with the memory of Timing::ddr4 at 300 MHz; "stalls", every channel stalls at random;
  // "resets", which stalls, too, and begins each case (of a model with state, the first) with a job that a reset ends.
  // Prints one line of JSON; 0: equal.
  int run(int argc, char** argv);  // in harness.cpp, which is compiled once for all models

 private:
  // A pointer argument: the port that takes its address, and a buffer.
  struct Pointer {
    Port address;
    std::size_t element;  // bytes
    Words expected;       // the buffer after the job
  };

  // Takes a case from the record and hands the model its arguments; returns the expected results.
  std::vector<Words> prepare() {
    restart();
    std::vector<Words> scalars, expected;
    for (auto& scalar : scalars_) scalars.push_back(record_.next(scalar.words()));
    for (auto& source : sources_) source.record(record_.next(record_.next() * source.words()));
    for (auto& sink : sinks_) sink.record(record_.next(record_.next() * sink.words()));
    for (auto& result : results_) expected.push_back(record_.next(result.words()));
    buffers_.clear();
    buffers_.start_at(static_cast<std::uint64_t>(random_()) << 12);
    for (std::size_t i = 0; i < pointers_.size(); ++i) {
      const std::uint32_t bytes = record_.next();
      const Words initial = record_.next((bytes + 3) / 4);
      pointers_[i].expected = record_.next((bytes + 3) / 4);
      const std::uint64_t base = buffers_.add(bytes, random_() * pointers_[i].element);
      std::memcpy(buffers_.data(i), initial.data(), bytes);
      const std::uint32_t address[2] = {static_cast<std::uint32_t>(base), static_cast<std::uint32_t>(base >> 32)};
      pointers_[i].address.put(address);
    }
    for (std::size_t i = 0; i < scalars_.size(); ++i) scalars_[i].put(scalars[i].data());
    return expected;
  }

  // ---- cycles ----

  void step() {
    half_cycle();
    finish_cycle();
  }

  // Drives the inputs of a cycle and looks at the settled outputs. True if anything moves.
  bool half_cycle() {
    clock_ = 0;
    for (auto& source : sources_) source.drive(random_);
    for (auto& sink : sinks_) sink.drive(random_);
    for (auto& memory : memories_) memory.drive(random_);
    for (auto& array : arrays_) array.drive();
    if (bus_ != nullptr) bus_->drive();
    evaluate_();
    bool moved = false;
    for (auto& source : sources_) moved = sample(source) || moved;
    for (auto& sink : sinks_) {
      const bool taken = sample(sink);
      compared_ += taken;
      moved = taken || moved;
    }
    for (auto& memory : memories_) {
      moved = memory.sample(random_) || moved;
      fail(memory.problem());
    }
    for (auto& array : arrays_) fail(array.sample());
    if (bus_ != nullptr) {
      bus_->sample();
      fail(bus_->problem());
    }
    return moved;
  }

  template <typename End>
  bool sample(End& end) {
    const bool moved = end.sample();
    fail(end.problem());
    return moved;
  }

  void finish_cycle() {
    clock_ = 1;
    evaluate_();
    for (auto& array : arrays_) array.finish();
    ++cycle_;
  }

  // Ends whatever runs; buses and streams are reset along with the model.
  void reset() {
    reset_ = 0;
    if (job_ == nullptr) *start_ = 0;
    restart();
    for (int i = 0; i < 4; ++i) {
      clock_ = 0;
      for (auto& source : sources_) source.hold();
      if (bus_ != nullptr) bus_->drive();
      evaluate_();
      finish_cycle();
    }
    reset_ = 1;
  }

  // Nothing is offered and nothing on its way; how each channel stalls is chosen anew.
  void restart() {
    for (auto& source : sources_) source.restart(random_, stalls_);
    for (auto& sink : sinks_) sink.restart(random_, stalls_);
    for (auto& memory : memories_) memory.restart(random_, stalls_);
    if (bus_ != nullptr) bus_->restart(random_(), stalls_ == Stalls::kRandom);
  }

  // ---- jobs ----

  std::size_t run_case() {
    const std::vector<Words> expected = prepare();
    run_job();
    for (std::size_t i = 0; i < results_.size() && problem_.empty(); ++i) compare_result(results_[i], expected[i]);
    for (std::size_t i = 0; i < pointers_.size(); ++i) compare_buffer(pointers_[i], i);
    return took_;
  }

  void start() {
    if (job_ != nullptr) job_->enable();
    cycle_ = 0;
    if (job_ == nullptr) {
      *start_ = 1;
    } else {
      job_->start();
    }
  }

  // A random number of cycles of a job.
  void run_some() {
    start();
    const std::size_t most = 1u << random_() % 12;
    const std::size_t cycles = random_() % most;
    for (std::size_t i = 0; i < cycles && problem_.empty() && *done_ == 0; ++i) step();
  }

  void run_job() {
    start();
    bool done = false;
    std::size_t idle = 0;
    while (!done && problem_.empty()) {
      idle = half_cycle() ? 0 : idle + 1;
      done = *done_ != 0;
      finish_cycle();
      if (done || idle < kQuiet) continue;
      if (idle == kQuiet) open_all();
      if (idle > kQuiet && repeats_.look(state_, state_bytes_)) stuck("the job waits for ever;");
      if (idle > patience_) stuck("no word moved for " + std::to_string(patience_) + " cycles, and the job goes on;");
    }
    if (job_ == nullptr) *start_ = 0;
    if (runs_on_) run_on();
    took_ = cycle_;
    for (int i = 0; i < 3 && problem_.empty(); ++i) step();  // nothing may follow
    if (job_ != nullptr && problem_.empty()) fail(job_->finish());
    for (auto& source : sources_) fail(source.end());
    for (auto& sink : sinks_) fail(sink.end());
    for (auto& memory : memories_) {
      if (!memory.idle()) fail(memory.state() + " when the job ended");
    }
  }

  // Until all words of the job have moved, or none does; and somewhat longer, in which nothing may follow.
  void run_on() {
    std::size_t idle = 0;
    const auto ended = [](const auto& end) { return end.end().empty(); };
    while (
        problem_.empty() && idle < 2 * kQuiet &&
        !(std::all_of(sources_.begin(), sources_.end(), ended) && std::all_of(sinks_.begin(), sinks_.end(), ended))) {
      idle = half_cycle() ? 0 : idle + 1;
      finish_cycle();
      if (idle == kQuiet) open_all();
    }
    for (int i = 0; i < 100 && problem_.empty(); ++i) step();
  }

  void compare_result(const Port& port, const Words& expected) {
    Words word(port.words());
    port.get(word.data());
    if (word != expected) fail(std::string("output ") + port.name + ": " + hex(word) + ", expected " + hex(expected));
    ++compared_;
  }

  // Byte by byte: what the job has written, and what it has not.
  void compare_buffer(const Pointer& pointer, std::size_t number) {
    const auto* expected = reinterpret_cast<const std::uint8_t*>(pointer.expected.data());
    for (std::size_t i = 0; i < buffers_.size(number); i += pointer.element) {
      const std::uint8_t* got = buffers_.data(number) + i;
      if (std::memcmp(got, expected + i, pointer.element) != 0) {
        fail(std::string("memory ") + pointer.address.name + ", element " + std::to_string(i / pointer.element) + ": " +
             hex(got, pointer.element) + ", expected " + hex(expected + i, pointer.element));
      }
      ++compared_;
    }
  }

  // What may still come has time to come; then the inputs stay as they are until a word moves.
  void open_all() {
    for (auto& source : sources_) source.stay_open();
    for (auto& sink : sinks_) sink.stay_open();
    for (auto& memory : memories_) memory.stay_open();
    if (bus_ != nullptr) bus_->hold_still();
    repeats_.forget();
  }

  void stuck(std::string state) {
    for (auto& source : sources_) {
      state += " " + source.state() + " taken, " + (source.waits() ? "waits for the next;" : "does not take the next;");
    }
    for (auto& sink : sinks_) state += " " + sink.state() + " written;";
    for (auto& memory : memories_) state += " " + memory.state();
    fail(state);
  }

  // Keeps the first problem; "" is none.
  void fail(const std::string& what) {
    if (problem_.empty() && !what.empty())
      problem_ = "seed " + std::to_string(seed_) + ", cycle " + std::to_string(cycle_) + ": " + what;
  }

  static constexpr std::size_t kQuiet = 2000;  // cycles; the slowest answer of a memory takes less

  CData& clock_;
  CData& reset_;
  std::function<void()> evaluate_;
  const void* state_ = nullptr;
  std::size_t state_bytes_ = 0;
  Repeats repeats_;
  std::vector<Port> scalars_;
  std::vector<Port> results_;
  std::vector<StreamSource> sources_;
  std::vector<StreamSink> sinks_;
  std::vector<Pointer> pointers_;
  Buffers buffers_;
  Channel channel_;
  std::deque<AxiMemory> memories_;
  std::deque<ArrayPort> arrays_;
  bool keeps_state_ = false;
  bool runs_on_ = false;
  std::unique_ptr<AxiLite> bus_;
  std::unique_ptr<JobRegisters> job_;
  CData* start_ = nullptr;
  const CData* done_ = nullptr;
  Record record_;
  std::size_t cycle_ = 0;
  std::size_t took_ = 0;  // of the last job, in cycles
  std::size_t compared_ = 0;
  std::size_t patience_ = 0;
  std::uint32_t seed_ = 0;
  std::mt19937 random_;
  Stalls stalls_ = Stalls::kRandom;
  std::string problem_;
};

}  // namespace openhls
