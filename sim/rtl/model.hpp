// SPDX-License-Identifier: Apache-2.0
// One verilated kernel with memory, streams and registers around it, for jobs one at a time without random stalls.
//
// Inputs of a job are set first, `run` does the whole job from a fresh reset, outputs are read after it. Everything is
// named as in the C++. The functions of library.hpp are this class for other languages.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "axi_lite.hpp"
#include "axi_memory.hpp"
#include "job_registers.hpp"
#include "ports.hpp"

namespace kvdrive::rtl {

using openhls::Words;

struct Input {
  openhls::StreamPorts port;
  Words words;
  std::size_t taken = 0;
  bool offered = false;
};

struct Output {
  openhls::StreamPorts port;
  Words words;
};

template <typename Top>
class Model {
 public:
  explicit Model(openhls::Timing timing) : channel_(timing) {}

  // ---- what the top has ----

  Top& top() { return top_; }
  void input(openhls::StreamPorts port) { inputs_.push_back({port, {}, 0, false}); }
  void output(openhls::StreamPorts port) { outputs_.push_back({port, {}}); }
  void scalar(openhls::Port port) { scalars_.push_back({port, Words(port.words())}); }
  void result(openhls::Port port) { results_.push_back({port, Words(port.words())}); }
  void pointer(openhls::Port address, std::size_t) { scalar(address); }
  void memory(openhls::AxiPins pins) { memories_.emplace_back(pins, buffers_, channel_); }
  openhls::AxiLite& bus(openhls::AxiLitePins pins) {
    bus_ = std::make_unique<openhls::AxiLite>(pins, [this] { step(); });
    return *bus_;
  }
  void pins(CData& start, const CData& done) {
    start_ = &start;
    done_ = &done;
  }
  void registers(const CData& interrupt) {
    done_ = &interrupt;
    job_ = std::make_unique<openhls::JobRegisters>(*bus_, interrupt);
  }

  // ---- a job ----

  void set(const std::string& name, std::uint64_t value) {
    Words& words = find(scalars_, name).words;
    words[0] = static_cast<std::uint32_t>(value);
    if (words.size() > 1) words[1] = static_cast<std::uint32_t>(value >> 32);
  }
  void feed(const std::string& name, const std::uint32_t* words, std::size_t count) {
    find(inputs_, name).words.assign(words, words + count);
  }
  // Memory that the kernel may touch, from the multiple of 4 KB after the last buffer on. Returns its address.
  std::uint64_t add_buffer(const std::uint8_t* bytes, std::size_t size) {
    const std::uint64_t base = buffers_.add(size);
    std::memcpy(buffers_.data(buffer_count_++), bytes, size);
    return base;
  }
  // The first `size` bytes of a buffer.
  void read_buffer(std::size_t number, std::uint8_t* bytes, std::size_t size) {
    if (number >= buffer_count_ || size > buffers_.size(number)) throw std::out_of_range("no such part of a buffer");
    std::memcpy(bytes, buffers_.data(number), size);
  }
  void clear_buffers() {
    buffers_.clear();
    buffer_count_ = 0;
  }
  const Words& words(const std::string& name) { return find(outputs_, name).words; }
  std::uint64_t get(const std::string& name) {
    const Words& words = find(results_, name).words;
    return words[0] | (words.size() > 1 ? static_cast<std::uint64_t>(words[1]) << 32 : 0);
  }

  // Cycles from the start to the end of the job. Throws where it stands still for `patience` cycles or breaks a
  // protocol.
  std::uint64_t run(std::uint64_t patience) {
    reset();
    for (auto& scalar : scalars_) scalar.port.put(scalar.words.data());
    const std::uint64_t cycles = run_to_end(patience);
    for (int i = 0; i < kAfter; ++i) step();
    if (job_ != nullptr) check(job_->finish());
    for (auto& result : results_) result.port.get(result.words.data());
    return cycles;
  }

 private:
  struct Value {
    openhls::Port port;
    Words words;
  };
  static constexpr int kAfter = 3;  // cycles in which nothing may come any more

  static const char* name_of(const Value& value) { return value.port.name; }
  template <typename Stream>
  static const char* name_of(const Stream& stream) {
    return stream.port.data.name;
  }
  template <typename List>
  static typename List::value_type& find(List& list, const std::string& name) {
    for (auto& item : list) {
      if (name == name_of(item)) return item;
    }
    throw std::out_of_range("the kernel has no such port: " + name);
  }

  static void check(const std::string& problem) {
    if (!problem.empty()) throw std::runtime_error(problem);
  }

  void reset() {
    top_.ap_rst_n = 0;
    if (job_ == nullptr) *start_ = 0;
    for (auto& input : inputs_) {
      input.taken = 0;
      input.offered = false;
      *input.port.valid = 0;
    }
    for (auto& output : outputs_) output.words.clear();
    for (auto& memory : memories_) memory.restart(random_, openhls::Stalls::kNone);
    if (bus_ != nullptr) bus_->restart(0, false);
    for (int i = 0; i < 4; ++i) {
      top_.ap_clk = 0;
      if (bus_ != nullptr) bus_->drive();
      top_.eval();
      top_.ap_clk = 1;
      top_.eval();
    }
    top_.ap_rst_n = 1;
  }

  std::uint64_t run_to_end(std::uint64_t patience) {
    if (job_ != nullptr) job_->enable();
    cycle_ = 0;
    if (job_ == nullptr) {
      *start_ = 1;
    } else {
      job_->start();
    }
    std::uint64_t idle = 0;
    for (bool done = false; !done;) {
      idle = settle() ? 0 : idle + 1;
      done = *done_ != 0;
      rise();
      if (idle > patience) throw std::runtime_error(stuck(patience));
    }
    if (job_ == nullptr) *start_ = 0;
    return cycle_;
  }

  void step() {
    settle();
    rise();
  }

  // The low half of a cycle: everything around the top drives its pins and looks at the answers. True if words moved.
  bool settle() {
    top_.ap_clk = 0;
    for (auto& input : inputs_) offer(input);
    for (auto& output : outputs_) *output.port.ready = 1;
    for (auto& memory : memories_) memory.drive(random_);
    if (bus_ != nullptr) bus_->drive();
    top_.eval();
    bool moved = false;
    for (auto& input : inputs_) moved = take(input) || moved;
    for (auto& output : outputs_) moved = collect(output) || moved;
    for (auto& memory : memories_) {
      moved = memory.sample(random_) || moved;
      check(memory.problem());
    }
    if (bus_ != nullptr) {
      bus_->sample();
      check(bus_->problem());
    }
    return moved;
  }

  void rise() {
    top_.ap_clk = 1;
    top_.eval();
    ++cycle_;
  }

  static void offer(Input& input) {
    const std::size_t at = input.taken * input.port.data.words();
    if (!input.offered && at < input.words.size()) {
      input.port.data.put(input.words.data() + at);
      input.offered = true;
    }
    *input.port.valid = input.offered;
  }
  static bool take(Input& input) {
    if (!input.offered || *input.port.ready == 0) return false;
    input.offered = false;
    ++input.taken;
    return true;
  }
  static bool collect(Output& output) {
    if (*output.port.valid == 0) return false;
    const std::size_t at = output.words.size();
    output.words.resize(at + output.port.data.words());
    output.port.data.get(output.words.data() + at);
    return true;
  }

  std::string stuck(std::uint64_t patience) {
    std::string state = "no word moved for " + std::to_string(patience) + " cycles;";
    for (auto& input : inputs_) {
      const std::size_t given = input.words.size() / input.port.data.words();
      state += std::string(" ") + input.port.data.name + ": " + std::to_string(input.taken) + " of " +
               std::to_string(given) + " taken;";
    }
    for (auto& output : outputs_) {
      const std::size_t seen = output.words.size() / output.port.data.words();
      state += std::string(" ") + output.port.data.name + ": " + std::to_string(seen) + " written;";
    }
    for (auto& memory : memories_) state += " " + memory.state();
    return state;
  }

  Top top_;
  std::vector<Value> scalars_, results_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  openhls::Buffers buffers_;
  std::size_t buffer_count_ = 0;
  openhls::Channel channel_;
  std::deque<openhls::AxiMemory> memories_;
  std::unique_ptr<openhls::AxiLite> bus_;
  std::unique_ptr<openhls::JobRegisters> job_;
  CData* start_ = nullptr;
  const CData* done_ = nullptr;
  std::mt19937 random_;
  std::uint64_t cycle_ = 0;
};

}  // namespace kvdrive::rtl
